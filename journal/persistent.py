"""A map that is a value: setting an entry gives a new map and leaves the old as it was.

Folds over journals keep maps with an entry per step, and copying one for each
event would make a run of n steps cost n². Here only the newest map of a family
owns a dict; each older one holds the single change that leads to its successor
and is rebuilt by undoing those changes if somebody reads it again. So a fold
that always goes on from its newest value pays O(1) a step and keeps no history
(an old map nobody holds is freed), while going on from an older value, as after
a commit that was refused, costs one copy and is just as right.

Maps of one family belong to one thread at a time, as a run does under its lock.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

V = TypeVar("V")


class _Absent:
    """The entry was not there before the change."""


_ABSENT: Final = _Absent()


class PersistentMap(Generic[V]):
    """An immutable map from text, cheap where each version is made from the newest one."""

    __slots__ = ("_entries", "_undo")

    def __init__(self, entries: dict[str, V] | None = None) -> None:
        """Take over *entries*: nobody else may change them from here on."""
        self._entries: dict[str, V] | None = {} if entries is None else entries
        self._undo: tuple[str, V | _Absent, PersistentMap[V]] | None = None

    def get(self, key: str) -> V | None:
        """Return the value at *key*, or None."""
        return self._owned().get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._owned()

    def __len__(self) -> int:
        return len(self._owned())

    def with_entry(self, key: str, value: V) -> PersistentMap[V]:
        """Return a map that also has *value* at *key*."""
        return self._changed(key, value)

    def without(self, key: str) -> PersistentMap[V]:
        """Return a map that lacks *key*."""
        return self._changed(key, _ABSENT)

    def _changed(self, key: str, value: V | _Absent) -> PersistentMap[V]:
        entries = self._owned()
        before = entries.get(key, _ABSENT)
        _put(entries, key, value)
        newer: PersistentMap[V] = PersistentMap(entries)
        self._entries, self._undo = None, (key, before, newer)
        return newer

    def _owned(self) -> dict[str, V]:
        """Return this map's own dict, rebuilt from the newest one if that has moved on."""
        if self._entries is not None:
            return self._entries
        undone: list[tuple[str, V | _Absent]] = []
        newer: PersistentMap[V] = self
        while newer._undo is not None:
            key, before, newer = newer._undo
            undone.append((key, before))
        newest = newer._entries
        assert newest is not None
        self._entries = dict(newest)
        for key, before in reversed(undone):
            _put(self._entries, key, before)
        self._undo = None
        return self._entries


def _put(entries: dict[str, V], key: str, value: V | _Absent) -> None:
    if isinstance(value, _Absent):
        entries.pop(key, None)
    else:
        entries[key] = value
