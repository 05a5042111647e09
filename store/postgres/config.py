"""How long the store waits for Postgres, and how many connections it has. Every wait has a bound."""

from __future__ import annotations

import msgspec

#: What our statements rest on, whatever a database or a role has been set to: each of them looks at what is
#: there once its locks are held, and bytes in JSON are hexadecimal digits. A blank needs a backslash.
_ALWAYS = {"default_transaction_isolation": "read\\ committed", "bytea_output": "hex"}


class PostgresConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds, in seconds unless the name says otherwise."""

    #: Connections of one process: one writes, the others read, retry and serve transactional steps.
    connections_max: int = 5
    #: How long to wait for one of them, while others have them, and for a new one.
    pool_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    #: How long a statement may take, and how long it may wait for a lock.
    statement_timeout_s: float = 10.0
    lock_timeout_s: float = 2.0
    #: A transaction of ours that does nothing for so long belongs to a process that was stopped.
    idle_timeout_s: float = 5.0
    #: How long one exchange may take as seen from here: what the server does not bound is COMMIT.
    exchange_timeout_s: float = 12.0
    #: How long a transactional step's transaction may be idle: the user's code decides.
    step_idle_timeout_s: float = 600.0

    #: Appends in one transaction.
    group_max: int = 256
    #: How many runs a process remembers as it left them, so that their next append need not ask; 0: none.
    remembered_max: int = 10_000

    #: How much time one partition of the journal covers, and how many are made ahead.
    partition_days: int = 7
    partitions_ahead: int = 4

    def server_options(self) -> str:
        """Return the settings of the sessions that work for us.

        Their statements are few and find everything by a key: planning them anew each time, or scanning a
        table that was small when the plan was made, costs more than executing them.
        """
        settings = {
            "statement_timeout": f"{self.statement_timeout_s * 1000:.0f}",
            "lock_timeout": f"{self.lock_timeout_s * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{self.idle_timeout_s * 1000:.0f}",
            **_ALWAYS,
            "plan_cache_mode": "force_generic_plan",
            "enable_seqscan": "off",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "jit": "off",
        }
        return _as_options(settings)

    def step_options(self) -> str:
        """Return the settings of the sessions that users' transactional steps have."""
        settings = {
            "lock_timeout": f"{self.lock_timeout_s * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{self.step_idle_timeout_s * 1000:.0f}",
            **_ALWAYS,
        }
        return _as_options(settings)


def _as_options(settings: dict[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items())
