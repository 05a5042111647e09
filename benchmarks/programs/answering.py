"""What every measured program does: it reads an order a line, carries it out, and answers with figures.

Only the standard library is used here: each program runs in the environment of the system that it measures.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TextIO

Figures = Mapping[str, object]
Orders = Mapping[str, Callable[..., Figures]]


def begin() -> TextIO:
    """Return where answers go. From now on whatever is printed, by children too, goes to the log."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def answer(answers: TextIO, orders: Orders) -> None:
    """Carry out the orders that come on standard input until it ends."""

    def say(figures: Figures) -> None:
        answers.write(json.dumps(figures) + "\n")
        answers.flush()

    say({"orders": sorted(orders)})
    for line in sys.stdin:
        order = json.loads(line)
        name = order.pop("order")
        try:
            say(orders[name](**order))
        except Exception as error:  # noqa: BLE001 - whatever it is, the harness says it
            traceback.print_exc()
            say({"error": f"{type(error).__name__}: {error}"})


def setting(name: str) -> str:
    """Return what the harness told the program about its servers."""
    return os.environ[f"BENCH_{name}"]


class Watch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How many."""
        return time.perf_counter() - self._began


def wait_until(holds: Callable[[], bool], *, every_s: float = 0.02, limit_s: float = 300.0) -> None:
    """Ask until it is so."""
    watch = Watch()
    while not holds():
        if watch.seconds > limit_s:
            message = f"not done after {limit_s:g} s"
            raise TimeoutError(message)
        time.sleep(every_s)
