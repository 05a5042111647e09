"""The way from a process to the servers and back: latencies, lost replies, senders that die.

A request is served by the servers' own process at one moment; so it may still be carried out after
its sender has died, or it may never arrive. A dead process's requests are refused, as a guard: its
code must not run any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.simulation.faults import Faults
from tests.simulation.loop import Process, current_process

T = TypeVar("T")


class Wire:
    """One process's connection to the servers."""

    def __init__(
        self, process: Process, servers: Process, faults: Faults, kill_sender: Callable[[], None]
    ) -> None:
        self.process = process
        self.kill_sender = kill_sender
        self.servers = servers
        self.faults = faults

    async def ask(self, serve: Callable[[], T]) -> T:
        """Let the servers call *serve* a little later; return what it returned, later still."""
        assert self.process.is_alive, f"{self.process.name} is dead, and asks for something"
        assert current_process() is self.process, f"{current_process().name} uses another's connection"
        answer: asyncio.Future[T] = self.process.loop.create_future()
        self.servers.call_later(self.faults.latency_s(), self._arrive, serve, answer)
        return await answer

    def _arrive(self, serve: Callable[[], T], answer: asyncio.Future[T]) -> None:
        if not self.process.is_alive and self.faults.strikes("request_dies_with_sender"):
            return
        outcome: T | Exception
        try:
            outcome = serve()
        except Exception as problem:  # noqa: BLE001 - whoever asked is told
            outcome = problem
        self.servers.call_later(self.faults.latency_s(), self._reply, outcome, answer)

    def _reply(self, outcome: T | Exception, answer: asyncio.Future[T]) -> None:
        if answer.done() or not self.process.is_alive:
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Carry out *work*, which does not wait for anything."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("an operation of a memory twin had to wait")
