"""Points inside the adapters, where a call to a store or a broker has done half of its work.

They are put around functions of the adapters from outside: the product has no hooks.
"""

from __future__ import annotations

from typing import Any

from tests.faults.crash_points import Watch
from tidewheel.broker.rabbitmq.publisher import Publisher
from tidewheel.store.postgres import writer
from tidewheel.store.postgres.transaction import PostgresTransaction
from tidewheel.store.postgres.writing_link import WritingLink


def watch_drivers(watch: Watch) -> None:
    """Let *watch* hear of transactions that hold locks, of commits, and of messages without a confirm."""
    ask, commit, write_known = writer.ask, writer.commit, WritingLink.ask
    commit_step, send = PostgresTransaction._commit, Publisher._send

    async def watched_ask(connection: Any, question: Any) -> Any:
        answer = await ask(connection, question)
        watch.reach(f"postgres.{type(question).__name__.lower()}:after")
        return answer

    async def watched_commit(connection: Any, write: Any) -> None:
        watch.reach("postgres.commit:before")
        await commit(connection, write)
        watch.reach("postgres.commit:after")

    def watched_write_known(self: WritingLink, name: str, arguments: Any, answered: Any) -> None:
        def watched_answer(answer: Any) -> None:
            watch.reach("postgres.known write:after")
            answered(answer)

        watch.reach("postgres.known write:before")
        write_known(self, name, arguments, watched_answer)

    async def watched_step(self: PostgresTransaction) -> None:
        watch.reach("postgres.step commit:before")
        await commit_step(self)
        watch.reach("postgres.step commit:after")

    async def watched_send(self: Publisher, publications: Any, batch: Any) -> None:
        await send(self, publications, batch)
        watch.reach("rabbit.send:after")

    writer.ask, writer.commit = watched_ask, watched_commit
    WritingLink.ask = watched_write_known  # type: ignore[method-assign]  # that is the point
    PostgresTransaction._commit = watched_step  # type: ignore[method-assign]  # that is the point
    Publisher._send = watched_send  # type: ignore[method-assign]  # as above
