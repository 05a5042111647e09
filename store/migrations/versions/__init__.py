"""The revisions, in the order of their numbers. One that was released is never edited."""
