"""What the tests of the guards share."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from typing import Any

from tests.unit.replay.journals import Driver, unchecked
from tidewheel import Context


def now_in_force() -> dict[str, Any]:
    """The functions as the process sees them now."""
    return {
        "time": time.time,
        "sleep": time.sleep,
        "monotonic": time.monotonic,
        "random": random.random,
        "uuid4": uuid.uuid4,
        "urandom": os.urandom,
    }


#: What the process had before any workflow moved.
ORIGINALS = now_in_force()


def attempt(fn: Callable[[], Any]) -> Driver:
    """Call *fn* inside workflow code."""

    @unchecked()
    async def order(ctx: Context) -> str:
        fn()
        return "allowed"

    driver = Driver(order)
    driver.activate()
    driver.end()
    return driver
