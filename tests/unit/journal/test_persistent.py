"""Maps that are values."""

from __future__ import annotations

from tidewheel.journal.persistent import PersistentMap


def test_setting_an_entry_leaves_the_old_map_as_it_was() -> None:
    """Old and new answer each for themselves, in whatever order they are asked."""
    empty: PersistentMap[int] = PersistentMap()
    one = empty.with_entry("a", 1)
    two = one.with_entry("a", 2).with_entry("b", 3)

    assert (two.get("a"), two.get("b")) == (2, 3)
    assert (one.get("a"), one.get("b")) == (1, None)
    assert "a" not in empty
    assert (len(empty), len(one), len(two)) == (0, 1, 2)


def test_removing_an_entry_leaves_the_old_map_as_it_was() -> None:
    """An entry is gone only where it was removed."""
    full: PersistentMap[int] = PersistentMap({"a": 1})

    bare = full.without("a")

    assert "a" in full
    assert "a" not in bare
    assert "a" not in bare.without("a")


def test_two_maps_may_go_on_from_one() -> None:
    """Branches do not see each other."""
    root: PersistentMap[int] = PersistentMap({"a": 1})

    left = root.with_entry("b", 2)
    right = root.with_entry("c", 3).without("a")

    assert [name for name in "abc" if name in left] == ["a", "b"]
    assert [name for name in "abc" if name in right] == ["c"]
    assert [name for name in "abc" if name in root] == ["a"]


def test_going_on_from_the_newest_map_copies_nothing() -> None:
    """One dict is handed from each version to the next."""
    newest: PersistentMap[int] = PersistentMap()
    entries = newest._entries
    for number in range(1000):
        newest = newest.with_entry(str(number), number)

    assert newest._entries is entries
