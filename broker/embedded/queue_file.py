"""Queues in a SQLite file: one connection to it, and everything that can be done to the queues.

Processes of one machine share the file. Who consumes is a row with the identity of its process, and
what it holds is tied to that row: when the process is dead, anybody who looks gives it back at once.
Where that cannot be known, or a consumer hangs, a heartbeat that stays away has the same effect.
Knows nothing of kombu. Errors are those of sqlite3.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from tidewheel.broker.embedded import statements as sql
from tidewheel.broker.embedded.processes import ProcessIdentity, is_known_dead, this_process
from tidewheel.broker.embedded.sqlite_file import SqliteFile
from tidewheel.broker.message import DELIVERED_TOO_OFTEN, EXPIRED, KEY, ORIGIN, REASON
from tidewheel.broker.routing import key_matches
from tidewheel.broker.topology import Exchange, Queue

#: How long a consumer may be silent before it is taken for dead, and how often it speaks.
LEASE_S = 30.0
BEAT_S = 5.0
#: How much expires in one transaction, and in one sweep.
SWEEP_BATCH_MAX = 500
SWEEP_BATCHES_MAX = 20


class Leased(NamedTuple):
    """A message in the hands of a consumer; *deliveries* counts this one too."""

    place: int
    body: bytes
    envelope: str
    deliveries: int


class QueueFile(SqliteFile):
    """A connection to the queues in the file at *path*, which is made if it is not there."""

    # Topology.

    def find_queue(self, name: str) -> Queue | None:
        """Return the queue as it was declared."""
        row = self.execute(sql.FIND_QUEUE, name=name).fetchone()
        if row is None:
            return None
        name, limit, dead_letters, ttl_s, expires_s = row
        return Queue(
            name=name,
            delivery_limit=limit,
            dead_letter_queue=dead_letters,
            ttl_s=ttl_s,
            expires_s=expires_s,
        )

    def find_exchange(self, name: str) -> Exchange | None:
        """Return the exchange as it was declared."""
        row = self.execute(sql.FIND_EXCHANGE, name=name).fetchone()
        return Exchange(*row) if row else None

    def declare_queue(self, queue: Queue) -> None:
        """Make sure that *queue* exists; who calls has checked that no other of this name does."""
        self.execute(
            sql.DECLARE_QUEUE,
            name=queue.name,
            delivery_limit=queue.delivery_limit,
            dead_letter_queue=queue.dead_letter_queue,
            ttl_s=queue.ttl_s,
            expires_s=queue.expires_s,
            now_s=self.now_s(),
        )

    def declare_exchange(self, exchange: Exchange) -> None:
        """Make sure that *exchange* exists; who calls has checked that no other of this name does."""
        self.execute(sql.DECLARE_EXCHANGE, name=exchange.name, type=exchange.type)

    def bind(self, *, exchange: str, key: str, queue: str) -> None:
        """Send what *exchange* gets under *key* to *queue*."""
        self.execute(sql.DECLARE_BINDING, exchange=exchange, key=key, queue=queue)

    def unbind(self, *, exchange: str, key: str, queue: str) -> None:
        """Send it there no more."""
        self.execute(sql.FORGET_BINDING, exchange=exchange, key=key, queue=queue)

    def delete_queue(self, name: str) -> None:
        """Remove a queue with everything that names it."""
        with self.transaction():
            for statement in sql.DELETE_QUEUE:
                self.execute(statement, name=name)

    def delete_exchange(self, name: str) -> None:
        """Remove an exchange and its bindings."""
        with self.transaction():
            for statement in sql.DELETE_EXCHANGE:
                self.execute(statement, name=name)

    def purge(self, queue: str) -> int:
        """Remove what waits in *queue*, and return how much that was."""
        return self.execute(sql.PURGE, queue=queue).rowcount

    def depth(self, queue: str) -> int:
        """Count what waits in *queue*."""
        count: int = self.one(sql.COUNT_WAITING, queue=queue)
        return count

    # Messages.

    def publish(
        self,
        *,
        exchange: str,
        keys: Sequence[str],
        body: bytes,
        envelope: str,
        expires_s: float | None = None,
    ) -> int:
        """Append a message to every queue that takes any of *keys*, and return how many do."""
        with self.transaction():
            queues = list(dict.fromkeys(keys)) if not exchange else self._routes(exchange, keys)
            taken = 0
            for queue in queues:
                taken += self.execute(
                    sql.PUBLISH,
                    queue=queue,
                    body=body,
                    envelope=envelope,
                    expires_s=expires_s,
                    now_s=self.now_s(),
                ).rowcount
            self.news = self.news or taken > 0
        return taken

    def add_consumer(self, queue: str) -> int | None:
        """Note that this process consumes *queue*, and return the consumer's id; None without a queue."""
        who = this_process()
        with self.transaction():
            done = self.execute(
                sql.ADD_CONSUMER,
                queue=queue,
                realm=who.realm,
                pid=who.pid,
                started=who.started,
                now_s=self.now_s(),
            )
        return done.lastrowid if done.rowcount else None

    def remove_consumer(self, consumer: int) -> None:
        """Give back everything a consumer holds, or bury what was delivered too often, and forget it."""
        with self.transaction():
            self._bury_delivered_too_often(consumer, None)
            released = self.execute(sql.RELEASE_ALL, consumer=consumer).rowcount
            self.execute(sql.QUEUE_WAS_USED, consumer=consumer, now_s=self.now_s())
            self.execute(sql.REMOVE_CONSUMER, consumer=consumer)
            self.news = self.news or released > 0

    def lease(self, consumer: int, queue: str, *, batch_max: int) -> list[Leased]:
        """Take the first messages that wait, at most *batch_max*."""
        now_s = self.now_s()
        # Reading first: a consumer that finds nothing must not keep others from writing.
        if not self.one(sql.IS_ANYTHING_WAITING, queue=queue, now_s=now_s):
            return []
        with self.transaction():
            rows = self.execute(
                sql.LEASE, consumer=consumer, queue=queue, now_s=now_s, batch_max=batch_max
            ).fetchall()
        return sorted(Leased(*row) for row in rows)

    def acknowledge(self, consumer: int, place: int) -> None:
        """Forget a message that *consumer* holds."""
        self.execute(sql.ACKNOWLEDGE, consumer=consumer, place=place)

    def release(self, consumer: int, place: int) -> None:
        """Give back a message that *consumer* holds, or bury it if it was delivered too often."""
        with self.transaction():
            self._bury_delivered_too_often(consumer, place)
            released = self.execute(sql.RELEASE, consumer=consumer, place=place).rowcount
            self.news = self.news or released > 0

    def return_unseen(self, consumer: int, place: int) -> None:
        """Give back a message that nobody has looked at, as if it had not been delivered."""
        with self.transaction():
            self.execute(sql.RETURN_UNSEEN, consumer=consumer, place=place)
            self.news = True

    def bury(self, consumer: int, place: int, reason: str) -> None:
        """Make a message that *consumer* holds a dead letter."""
        with self.transaction():
            found = self.execute(sql.FIND_HELD, consumer=consumer, place=place).fetchall()
            self._move_to_dead_letters([row[0] for row in found], reason)

    # Housekeeping.

    def is_consumer(self, consumer: int) -> bool:
        """Tell whether *consumer* is still known: neither taken for dead, nor its queue deleted."""
        return bool(self.one(sql.CONSUMER_EXISTS, consumer=consumer))

    def beat(self, consumer: int) -> None:
        """Say that *consumer* is alive."""
        self.execute(sql.BEAT, consumer=consumer, now_s=self.now_s())

    def sweep(self) -> None:
        """Give back what the dead hold; bury what is too old; delete queues that nobody uses.

        Whoever looks does it. Only reads while there is nothing to do.
        """
        self.check_file()
        for consumer in self._dead_consumers():
            self.remove_consumer(consumer)
        for _ in range(SWEEP_BATCHES_MAX):
            if not self._bury_expired():
                break
        if self.execute(sql.FIND_EXPIRED_QUEUES, now_s=self.now_s()).fetchone():
            with self.transaction():
                for (name,) in self.execute(sql.FIND_EXPIRED_QUEUES, now_s=self.now_s()).fetchall():
                    self.delete_queue(name)

    def _dead_consumers(self) -> list[int]:
        """Return the consumers whose process is dead, or that were silent for too long."""
        silent_before_s = self.now_s() - LEASE_S
        verdicts: dict[ProcessIdentity, bool] = {}
        dead = []
        for consumer, realm, pid, started, beat_at_s in self.execute(sql.FIND_CONSUMERS).fetchall():
            process = ProcessIdentity(realm=realm, pid=pid, started=started)
            if process not in verdicts:
                verdicts[process] = is_known_dead(process)
            if verdicts[process] or beat_at_s < silent_before_s:
                dead.append(consumer)
        return dead

    def _bury_expired(self) -> bool:
        """Bury one batch of expired messages; true if there may be more."""
        query = {"now_s": self.now_s(), "batch_max": SWEEP_BATCH_MAX}
        if self.execute(sql.FIND_EXPIRED, **query).fetchone() is None:
            return False
        with self.transaction():
            places = [row[0] for row in self.execute(sql.FIND_EXPIRED, **query)]
            self._move_to_dead_letters(places, EXPIRED)
        return len(places) == SWEEP_BATCH_MAX

    def _bury_delivered_too_often(self, consumer: int, place: int | None) -> None:
        found = self.execute(sql.FIND_DELIVERED_TOO_OFTEN, consumer=consumer, place=place).fetchall()
        self._move_to_dead_letters([row[0] for row in found], DELIVERED_TOO_OFTEN)

    def _move_to_dead_letters(self, places: Sequence[int], reason: str) -> None:
        if not places:
            return
        query = {"places": json.dumps(places)}
        self.execute(
            sql.COPY_TO_DEAD_LETTERS,
            **query,
            reason=reason,
            reason_header=REASON,
            origin_header=ORIGIN,
            key_header=KEY,
            now_s=self.now_s(),
        )
        self.execute(sql.REMOVE_PLACES, **query)
        self.news = True

    def _routes(self, exchange: str, keys: Sequence[str]) -> list[str]:
        """Return the queues that take any of *keys* from *exchange*, each once."""
        rows = self.execute(sql.FIND_ROUTES, exchange=exchange)
        found = (
            queue for kind, pattern, queue in rows if any(key_matches(kind, pattern, key) for key in keys)
        )
        return list(dict.fromkeys(found))
