"""``tidewheel doctor``: finds what keeps runs from going on, says why, and what to do about it."""
