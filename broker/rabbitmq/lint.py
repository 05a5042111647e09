"""Rules for declarations that RabbitMQ 3.10 and 4.x share, and rules that keep our queues out of trouble.

Pure. Against 3.10 the declarations are also tried; 4.x was read about and not run, so for 4.x these rules
are all there is. ``is_refused`` tells what a broker of either version does not take from what it takes
and somebody regrets. Every topology that the product declares passes, which a test checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec

from tidewheel.broker.rabbitmq.declarations import QueueDeclaration, queue_declarations
from tidewheel.broker.topology import Exchange, Topology

NAME_BYTES_MAX: Final = 255
#: AMQP's own limit for exchanges, which some clients keep to.
EXCHANGE_NAME_MAX: Final = 127
RESERVED: Final = "amq."
#: The longest time RabbitMQ takes, in milliseconds.
TIME_MAX_MS: Final = 2**32 - 1
#: A queue that goes before its messages takes them along, without dead letters: it lives so much longer.
EXPIRY_TO_TTL_MIN: Final = 10

_SHARED: Final = frozenset(
    {
        "x-queue-type",
        "x-message-ttl",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-overflow",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-single-active-consumer",
        "x-queue-leader-locator",
    }
)
#: What each kind of queue may be told. RabbitMQ 4 refuses ``x-queue-mode``, quorum queues of 3.10 priorities.
_ALLOWED: Final = {
    "quorum": _SHARED
    | {"x-delivery-limit", "x-dead-letter-strategy", "x-quorum-initial-group-size", "x-max-in-memory-length"},
    "classic": _SHARED,
}


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a declaration that is refused, or regretted."""

    subject: str
    problem: str
    is_refused: bool = True

    def __str__(self) -> str:
        """Say it to people."""
        return f"{self.subject}: {self.problem}"


def breaches(topology: Topology, *, known_queues: Collection[str] | None = None) -> list[Breach]:
    """Return everything in *topology* that breaks a rule.

    With *known_queues*, the names of all queues that exist or will, also dead letters that go nowhere.
    """
    found = [breach for exchange in topology.exchanges for breach in _exchange_breaches(exchange)]
    declarations = list(queue_declarations(topology))
    for declaration in declarations:
        found += queue_breaches(declaration)
    for binding in topology.bindings:
        if len(binding.key.encode()) > NAME_BYTES_MAX:
            found.append(Breach(subject=f"binding of {binding.queue!r}", problem="its key is too long"))
    if known_queues is not None:
        found += _dead_letter_breaches(declarations, known_queues)
    return found


def queue_breaches(declaration: QueueDeclaration) -> Iterator[Breach]:
    """Yield the rules that one *declaration* breaks by itself."""
    subject = f"queue {declaration.name!r}"
    yield from _name_breaches(subject, declaration.name, NAME_BYTES_MAX)
    for property_, is_right in (
        ("durable", declaration.durable),
        ("not exclusive", not declaration.exclusive),
        ("not deleted with its consumers", not declaration.auto_delete),
    ):
        if not is_right:
            problem = f"it has to be {property_}: quorum queues are, and RabbitMQ 4.3 refuses others"
            yield Breach(subject=subject, problem=problem)
    kind = declaration.arguments.get("x-queue-type")
    if kind not in _ALLOWED:
        problem = f"x-queue-type has to be quorum or classic, and is {kind!r}: else the vhost decides"
        yield Breach(subject=subject, problem=problem)
        return
    for name in sorted(declaration.arguments.keys() - _ALLOWED[kind]):
        yield Breach(subject=subject, problem=f"a {kind} queue has no {name} in every version of RabbitMQ")
    for problem in _argument_problems(kind, declaration.arguments):
        yield Breach(subject=subject, problem=problem)
    yield from _regrets(subject, kind, declaration.arguments)


def _argument_problems(kind: str, arguments: dict[str, Any]) -> Iterator[str]:
    limit = arguments.get("x-delivery-limit")
    if kind == "quorum" and (not isinstance(limit, int) or limit < 0):
        yield f"x-delivery-limit has to be a number from 0 up, and is {limit!r}: RabbitMQ 4 would take 20"
    for name, least in (("x-message-ttl", 0), ("x-expires", 1)):
        time_ms = arguments.get(name, least)
        if not isinstance(time_ms, int) or not least <= time_ms <= TIME_MAX_MS:
            yield f"{name} has to be in milliseconds from {least} to {TIME_MAX_MS}, and is {time_ms!r}"
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        yield "x-dead-letter-routing-key needs x-dead-letter-exchange"
    if arguments.get("x-dead-letter-strategy") == "at-least-once" and (
        arguments.get("x-overflow") != "reject-publish"
    ):
        yield "x-dead-letter-strategy at-least-once needs x-overflow reject-publish"


def _regrets(subject: str, kind: str, arguments: dict[str, Any]) -> Iterator[Breach]:
    ttl_ms, expires_ms = arguments.get("x-message-ttl"), arguments.get("x-expires")
    if expires_ms is None:
        return
    if kind == "quorum":
        # Seen with 3.10.8: the channel waits five seconds, and then the connection is closed with 541.
        problem = (
            "it can expire, which costs whoever publishes to it at that moment the connection: use classic"
        )
        yield Breach(subject=subject, problem=problem, is_refused=False)
    if ttl_ms is None:
        problem = "it can expire, and its messages cannot: they would be lost with it"
        yield Breach(subject=subject, problem=problem, is_refused=False)
    elif expires_ms < EXPIRY_TO_TTL_MIN * ttl_ms:
        problem = (
            f"it expires after {expires_ms} ms and its messages after {ttl_ms} ms; let it live "
            f"{EXPIRY_TO_TTL_MIN} times as long, or they are lost with it"
        )
        yield Breach(subject=subject, problem=problem, is_refused=False)


def _exchange_breaches(exchange: Exchange) -> Iterator[Breach]:
    yield from _name_breaches(f"exchange {exchange.name!r}", exchange.name, EXCHANGE_NAME_MAX)


def _name_breaches(subject: str, name: str, bytes_max: int) -> Iterator[Breach]:
    size = len(name.encode())
    if not 1 <= size <= bytes_max:
        yield Breach(subject=subject[:80], problem=f"its name has {size} bytes; it may have 1 to {bytes_max}")
    if name.startswith(RESERVED):
        yield Breach(subject=subject, problem=f"names that begin with {RESERVED} are RabbitMQ's own")
    if not name.isprintable():
        yield Breach(subject=subject, problem="its name has characters that nobody can see")


def _dead_letter_breaches(
    declarations: Iterable[QueueDeclaration], known_queues: Collection[str]
) -> Iterator[Breach]:
    targets = {
        declaration.name: declaration.arguments["x-dead-letter-routing-key"]
        for declaration in declarations
        if "x-dead-letter-routing-key" in declaration.arguments
    }
    for name, target in targets.items():
        if target not in known_queues:
            problem = f"its dead letters go to {target!r}, which nobody declares: they would be lost"
            yield Breach(subject=f"queue {name!r}", problem=problem, is_refused=False)
        passed, following = {name}, target
        while following in targets and following not in passed:
            passed.add(following)
            following = targets[following]
        if following in passed:
            problem = f"its dead letters come back to {following!r}: RabbitMQ drops what goes in a circle"
            yield Breach(subject=f"queue {name!r}", problem=problem, is_refused=False)
