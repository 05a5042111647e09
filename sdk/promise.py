"""``DurablePromise``: the type of what a durable verb returns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel.replay.promise import Promise

R = TypeVar("R")

if TYPE_CHECKING:

    class DurablePromise(asyncio.Future[R]):
        """A future that survives restarts. Await it, or hand it to asyncio's own functions."""

        #: The promise's place in its run, as the journal shows it.
        path: str

else:
    DurablePromise = Promise


def typed(promise: Promise) -> DurablePromise[Any]:
    """Give a promise of the replay layer its public type."""
    return promise  # type: ignore[return-value]  # where it runs, the two are one class
