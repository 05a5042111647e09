"""Which declarations fit together, and which keys a binding takes.

Pure, and the same for every broker that keeps its topology by itself.
"""

from __future__ import annotations

from tidewheel.broker.topology import Exchange, Queue, Topology
from tidewheel.journal.errors import InvalidRequest


def key_matches(exchange_type: str, pattern: str, key: str) -> bool:
    """Tell whether an exchange of this type sends *key* to a queue bound with *pattern*."""
    match exchange_type:
        case "fanout":
            return True
        case "topic":
            return _topic_matches(pattern.split("."), key.split(".") if key else [])
        case _:
            return pattern == key


def _topic_matches(pattern: list[str], words: list[str]) -> bool:
    """Match word by word: ``*`` is any one word, ``#`` any number of them, also none.

    Only the last ``#`` is ever tried again with one word more, so the work is bounded by the
    product of the lengths, whatever the pattern.
    """
    at, word, last_hash, resume_word = 0, 0, -1, 0
    if pattern == [""]:
        pattern = []
    while word < len(words):
        if at < len(pattern) and pattern[at] == "#":
            last_hash, resume_word = at, word
            at += 1
        elif at < len(pattern) and pattern[at] in ("*", words[word]):
            at, word = at + 1, word + 1
        elif last_hash >= 0:
            resume_word += 1
            at, word = last_hash + 1, resume_word
        else:
            return False
    return all(part == "#" for part in pattern[at:])


def check_declaration(
    topology: Topology, *, exchanges: dict[str, Exchange], queues: dict[str, Queue]
) -> None:
    """Raise ``InvalidRequest`` where *topology* contradicts what exists, itself, or names what does not."""
    if "" in {exchange.name for exchange in topology.exchanges} | {queue.name for queue in topology.queues}:
        raise InvalidRequest("an exchange or a queue has no name; give it one")
    exchanges, queues = dict(exchanges), dict(queues)
    for exchange in topology.exchanges:
        if exchanges.setdefault(exchange.name, exchange) != exchange:
            raise InvalidRequest(f"the exchange {exchange.name!r} exists with another type; use another name")
    for queue in topology.queues:
        if queues.setdefault(queue.name, queue) != queue:
            raise InvalidRequest(
                f"the queue {queue.name!r} exists with other arguments; delete it or use another name"
            )
    for binding in topology.bindings:
        if binding.exchange not in exchanges or binding.queue not in queues:
            raise InvalidRequest(
                f"cannot bind queue {binding.queue!r} to exchange {binding.exchange!r}: declare both first"
            )
