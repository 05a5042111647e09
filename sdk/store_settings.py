"""How a process uses a store in Postgres: how many connections it has, and how long it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tidewheel.sdk.settings import Key, Settings, Unit

if TYPE_CHECKING:
    from tidewheel.store.postgres.config import PostgresConfig


class PostgresSettings(Settings, frozen=True, kw_only=True):
    """How a process uses a store in Postgres; a SQLite store needs none of it."""

    connections: Annotated[
        int,
        Key("TIDEWHEEL_POSTGRES_CONNECTIONS", "Connections a process has at most.", least=2, most=1_000),
    ] = 5
    statement_timeout_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_POSTGRES_STATEMENT_TIMEOUT",
            "A statement that takes longer is given up, and tried again later.",
            Unit.SECONDS,
            least=0.1,
            most=3_600.0,
        ),
    ] = 10.0
    lock_timeout_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_POSTGRES_LOCK_TIMEOUT",
            "A statement that waits longer for a lock is given up, and tried again later.",
            Unit.SECONDS,
            least=0.01,
            most=3_600.0,
        ),
    ] = 2.0
    batch: Annotated[
        int,
        Key(
            "TIDEWHEEL_BATCH",
            "Writes of a process that share a transaction, where so many wait; 1: none do.",
            least=1,
            most=1_000,
        ),
    ] = 256
    remembered: Annotated[
        int,
        Key(
            "TIDEWHEEL_POSTGRES_REMEMBERED",
            "Runs a process remembers as it left them, so that their next write need not ask; 0: none.",
            least=0,
            most=1_000_000,
        ),
    ] = 10_000
    partition_days: Annotated[
        int,
        Key(
            "TIDEWHEEL_POSTGRES_PARTITION_DAYS",
            "How much time one partition of the journal covers. A change counts for those made from then on.",
            Unit.DAYS,
            least=1,
            most=366,
        ),
    ] = 7

    def config(self) -> PostgresConfig:
        """Return it as the store takes it."""
        from tidewheel.store.postgres.config import PostgresConfig  # noqa: PLC0415 - only when it is used

        return PostgresConfig(
            connections_max=self.connections,
            statement_timeout_s=self.statement_timeout_s,
            lock_timeout_s=self.lock_timeout_s,
            exchange_timeout_s=self.statement_timeout_s + 2.0,
            partition_days=self.partition_days,
            group_max=self.batch,
            remembered_max=self.remembered,
        )
