"""Workers that are gone, for a while: what they had sent may be committed after they were given up.

A process that is killed leaves a statement with the database, which carries it out all the same, maybe after
somebody has given the process up: a step that begins with it would wait until somebody looks at long
steps. So whoever has vanished is given up again, in each of the next rounds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: The rounds in which somebody who has vanished is given up again.
ROUNDS: Final = 5


class Departed:
    """Who was registered before and is not any more, whoever gave them up."""

    def __init__(self) -> None:
        self._registered: set[str] = set()
        self._left: dict[str, int] = {}

    def round(self, registered: Collection[str]) -> list[str]:
        """Take who is *registered* now; return who has to be given up once more."""
        for worker_id in self._registered.difference(registered):
            self._left[worker_id] = ROUNDS
        self._registered = set(registered)
        # Who has announced itself again was not dead.
        again = [worker_id for worker_id in self._left if worker_id not in self._registered]
        self._left = {
            worker_id: self._left[worker_id] - 1 for worker_id in again if self._left[worker_id] > 1
        }
        return again
