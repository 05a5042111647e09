"""Commands as anybody publishes them, and what became of those that could not be followed."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.workers.house import House
from tidewheel.broker.message import REASON, Message, Publication
from tidewheel.broker.topology import COMMANDS, commands_topology, dead_letter_queue
from tidewheel.store.protocol import RunFilter

DEAD = dead_letter_queue(COMMANDS)


class Postbox:
    """The exchange for commands of a *house*."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def post(self, key: str, body: bytes | None = None, *, message_id: str = "", **fields: Any) -> None:
        """Publish a command: JSON with these *fields*, or any bytes; without an id, as some do."""
        message = Message(body=json.dumps(fields).encode() if body is None else body, message_id=message_id)
        await self._house.broker.declare(commands_topology())
        await self._house.broker.publish([Publication(message=message, exchange=COMMANDS, routing_key=key)])

    async def start(self, workflow: str, *given: Any, message_id: str = "", **fields: Any) -> None:
        """Publish a start."""
        await self.post("start", message_id=message_id, workflow=workflow, input=list(given), **fields)

    async def signal(self, run_id: str, name: str, *, message_id: str = "", **fields: Any) -> None:
        """Publish a signal."""
        await self.post("signal", message_id=message_id, run_id=run_id, name=name, **fields)

    async def cancel(self, run_id: str, *, message_id: str = "", **fields: Any) -> None:
        """Publish a cancel."""
        await self.post("cancel", message_id=message_id, run_id=run_id, **fields)

    async def waiting(self) -> int:
        """How many commands nobody has in hand."""
        return await self._house.broker.depth(COMMANDS)

    async def reasons(self) -> list[str]:
        """Why commands became dead letters, the oldest first. They stay where they are."""
        count = await self._house.broker.depth(DEAD)
        if not count:
            return []
        async with self._house.broker.consume(DEAD, prefetch=count) as letters:
            return [(await anext(letters)).message.headers[REASON] for _ in range(count)]

    async def runs(self, namespace: str = "default") -> dict[str, str]:
        """The runs that are there, with their status."""
        found = await self._house.store.runs(RunFilter(namespace=namespace, limit=1_000))
        return {run.run_id: run.status for run in found}
