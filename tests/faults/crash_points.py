"""Every call to a store or a broker as two places to die at: before it, and after it.

The wrappers are made from the protocols themselves, so a method that is added later is watched too. What
cannot be classified is refused: nothing is let through unwatched.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal, TypeAlias, cast

from tidewheel.broker.commands import read_command
from tidewheel.broker.errors import PoisonMessage
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.protocol import Broker, Delivery
from tidewheel.broker.work_items import read_item
from tidewheel.store.append import Append
from tidewheel.store.protocol import Store, Transaction

Kind: TypeAlias = Literal["property", "call", "block", "submission", "plain"]

#: What the points of each protocol begin with.
PREFIXES: dict[type, str] = {
    Store: "store",
    Transaction: "transaction",
    Broker: "broker",
    Delivery: "delivery",
}

#: What is answered by a call, later.
_SUBMISSIONS = frozenset({"store.submit"})
#: What does nothing that a death could come before or after.
_PLAIN = frozenset({"store.flush", "store.sketched"})

_is_watched_call: ContextVar[bool] = ContextVar("is_watched_call", default=False)


class Watch:
    """Hears of every point that is reached, and kills this process at one of them."""

    def __init__(self, fatal: str | None = None) -> None:
        """*fatal* is a point and its occurrence, such as ``store.append:before#3``."""
        self._fatal = fatal
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        #: The points that were reached, in order, each with its occurrence.
        self.reached: list[str] = []
        #: Calls that did not come through a wrapper.
        self.unwatched: list[str] = []

    def reach(self, point: str) -> None:
        """Note that *point* was reached; if it is the fatal one nothing comes after."""
        with self._lock:
            self._counts[point] += 1
            named = f"{point}#{self._counts[point]}"
            if named == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
            self.reached.append(named)

    def seal(self, real: object, protocol: type) -> None:
        """Notice calls to *real* that do not come through its wrapper."""
        for name, kind in members(protocol).items():
            if kind != "property":
                setattr(real, name, self._sealed(f"{PREFIXES[protocol]}.{name}", getattr(real, name)))

    def _sealed(self, call: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any, **options: Any) -> Any:
            if not _is_watched_call.get():
                self.unwatched.append(call)
            return method(*arguments, **options)

        return checked


def watched_store(store: Store, watch: Watch) -> Store:
    """Return *store* with a point before and after every call."""
    return cast("Store", _wrapper(Store)(store, watch))


def watched_broker(broker: Broker, watch: Watch) -> Broker:
    """Return *broker* with a point before and after every call, to it and to what it delivers."""
    return cast("Broker", _wrapper(Broker)(broker, watch))


def members(protocol: type) -> dict[str, Kind]:
    """Return what *protocol* has, and how each of it is called."""
    found: dict[str, Kind] = {}
    for name, member in vars(protocol).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            found[name] = "property"
        elif inspect.iscoroutinefunction(member):
            found[name] = "call"
        elif inspect.isfunction(member) and f"{PREFIXES[protocol]}.{name}" in _INSIDE:
            found[name] = "block"
        elif inspect.isfunction(member) and f"{PREFIXES[protocol]}.{name}" in _SUBMISSIONS:
            found[name] = "submission"
        elif inspect.isfunction(member) and f"{PREFIXES[protocol]}.{name}" in _PLAIN:
            found[name] = "plain"
        else:
            raise TypeError(f"{protocol.__name__}.{name}: say in crash_points how it is called")
    return found


def calls() -> set[str]:
    """Return every call that has to have points."""
    return {
        f"{prefix}.{name}"
        for protocol, prefix in PREFIXES.items()
        for name, kind in members(protocol).items()
        if kind not in ("property", "plain")
    }


class _Watched:
    """A wrapper's instance; its methods are made by ``_wrapper``."""

    def __init__(self, real: Any, watch: Watch) -> None:
        self._real = real
        self._watch = watch

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call the real thing, as its seal allows."""
        token = _is_watched_call.set(True)
        try:
            return getattr(self._real, name)(*arguments, **options)
        finally:
            _is_watched_call.reset(token)


@cache
def _wrapper(protocol: type) -> type[_Watched]:
    prefix = PREFIXES[protocol]
    makers: dict[Kind, Callable[[str, str], Any]] = {
        "property": _property,
        "call": _method,
        "block": _block,
        "submission": _submission,
        "plain": _plain,
    }
    made = {name: makers[kind](prefix, name) for name, kind in members(protocol).items()}
    return type(f"Watched{protocol.__name__}", (_Watched,), made)


def _property(_prefix: str, name: str) -> property:
    return property(lambda self: getattr(self._real, name))


def _method(prefix: str, name: str) -> Callable[..., Any]:
    async def method(self: _Watched, *arguments: Any, **options: Any) -> Any:
        point = f"{prefix}.{name}{_detail(self._real, arguments)}"
        self._watch.reach(f"{point}:before")
        answer = await self._call(name, *arguments, **options)
        self._watch.reach(f"{point}:after")
        return answer

    return method


def _submission(prefix: str, name: str) -> Callable[..., Any]:
    def method(self: _Watched, request: Any, answered: Callable[[Any], None]) -> None:
        point = f"{prefix}.{name}{_detail(self._real, [request])}"

        def watched_answer(answer: Any) -> None:
            self._watch.reach(f"{point}:after")
            answered(answer)

        self._watch.reach(f"{point}:before")
        self._call(name, request, watched_answer)

    return method


def _plain(_prefix: str, name: str) -> Callable[..., Any]:
    return lambda self, *arguments: self._call(name, *arguments)


def _block(prefix: str, name: str) -> Callable[..., Any]:
    inside = _INSIDE[f"{prefix}.{name}"]

    def method(self: _Watched, *arguments: Any, **options: Any) -> _Block:
        point = f"{prefix}.{name}{_detail(self._real, arguments)}"
        return _Block(
            self._call(name, *arguments, **options), point, self._watch, lambda got: inside(got, self._watch)
        )

    return method


class _Block:
    """A context manager with points around its beginning and its end."""

    def __init__(self, real: Any, point: str, watch: Watch, inside: Callable[[Any], Any]) -> None:
        self._real, self._point, self._watch, self._inside = real, point, watch, inside

    async def __aenter__(self) -> Any:
        self._watch.reach(f"{self._point}:before")
        got = await self._real.__aenter__()
        self._watch.reach(f"{self._point}:after")
        return self._inside(got)

    async def __aexit__(self, *problem: object) -> Any:
        self._watch.reach(f"{self._point}.exit:before")
        swallowed = await self._real.__aexit__(*problem)
        self._watch.reach(f"{self._point}.exit:after")
        return swallowed


class _Deliveries:
    """An iterator with a point after each delivery."""

    def __init__(self, real: AsyncIterator[Delivery], watch: Watch) -> None:
        self._real, self._watch = real, watch

    def __aiter__(self) -> _Deliveries:
        return self

    async def __anext__(self) -> Any:
        delivery = await anext(self._real)
        self._watch.reach(f"delivery{_detail(delivery, ())}:after")
        return _wrapper(Delivery)(delivery, self._watch)


#: What a block of each kind gives, watched.
_INSIDE: dict[str, Callable[[Any, Watch], Any]] = {
    # Not yet: to make the wrapper takes what is being defined here.
    "store.transaction": lambda real, watch: _wrapper(Transaction)(real, watch),  # noqa: PLW0108 - as said
    "broker.consume": _Deliveries,
}


def _detail(real: Any, arguments: Sequence[Any]) -> str:
    """Say what a call is about, in words that are the same in every run of the same code."""
    given = arguments[0] if arguments else None
    if isinstance(given, Append):
        return f"[{_append_detail(given)}]"
    if isinstance(given, str):
        return f"[{_queue_detail(given)}]" if given.startswith("tidewheel.") else ""
    if isinstance(given, list | tuple) and given and isinstance(given[0], Append):
        return f"[{'|'.join(_append_detail(one) for one in given)}]"
    if isinstance(given, list | tuple) and given and isinstance(given[0], Publication):
        return f"[{'|'.join(_item_detail(one.message) for one in given)}]"
    message = getattr(real, "message", None)
    return f"[{_item_detail(message)}]" if isinstance(message, Message) else ""


def _append_detail(append: Append) -> str:
    words = [] if append.start is None else ["Start"]
    words += [type(fact).__name__ for fact in append.facts]
    if append.moves is not None:
        words += ["moves", *(type(event).__name__ for event in append.moves.events)]
    if append.mark is not None:
        words.append(type(append.mark).__name__)
    return ",".join(words)


def _item_detail(message: Message) -> str:
    for read in (read_item, lambda message: read_command(message.body)):
        with contextlib.suppress(PoisonMessage):
            return type(read(message)).__name__
    return "poison"


def _queue_detail(queue: str) -> str:
    """Return which of our queues it is, without the names of processes."""
    kind = queue.split(".")[1]
    return "dead letters" if queue.endswith(".dlq") else kind
