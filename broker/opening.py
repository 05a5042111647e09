"""From a URL to a broker. Importing this costs nothing: what a broker needs is imported when it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from tidewheel.journal.errors import InvalidRequest
from tidewheel.telemetry import switch

if TYPE_CHECKING:
    from tidewheel.broker.memory import MemoryBroker
    from tidewheel.broker.protocol import Broker

_RABBITMQ = frozenset({"amqp", "amqps"})
_SQLITE = frozenset({"sqlite", "sqlite3"})

_of_this_process: list[MemoryBroker] = []


class BrokerOpener(Protocol):
    """Opens the broker of a URL: ``open_broker``, or ``open_kombu_broker``."""

    def __call__(self, url: str, *, store_url: str) -> Broker:
        """Return the broker at *url*."""


def open_broker(url: str, *, store_url: str) -> Broker:
    """Return the broker at *url*; ``embedded://`` alone is a file beside the one of *store_url*.

    Nothing is connected yet: a broker that cannot be reached says so at its first use. Raises
    ``InvalidRequest`` for a URL that can never work. Where telemetry is on, it tells what it carries.
    """
    return _told_of(_opened(url, store_url), url)


def _opened(url: str, store_url: str) -> Broker:
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme:
        raise InvalidRequest(f"{_shown(url)!r} is no broker URL; try embedded:// or memory://")
    scheme = scheme.lower()
    if scheme == "memory":
        if rest.strip("/"):
            raise InvalidRequest(f"memory:// takes nothing after it, and got {_shown(url)!r}")
        return _memory().connect()
    if scheme == "embedded":
        return _embedded(_embedded_path(rest, store_url))
    if scheme in _RABBITMQ:
        return _rabbitmq(url)
    if scheme == "pyamqp":
        return _kombu_rabbitmq(f"amqp://{rest}")
    return _foreign(url, scheme)


def open_kombu_broker(url: str, *, store_url: str) -> Broker:
    """Return the broker at *url* as ``open_broker`` does, but RabbitMQ too through kombu."""
    if url.partition("://")[0].lower() not in _RABBITMQ:
        return open_broker(url, store_url=store_url)
    return _told_of(_kombu_rabbitmq(url), url)


def _kombu_rabbitmq(url: str) -> Broker:
    """Return the RabbitMQ broker at *url*, through kombu."""
    from tidewheel.broker.kombu_bridge import KombuBroker  # noqa: PLC0415 - kombu takes long to import
    from tidewheel.broker.kombu_rabbitmq import rabbitmq  # noqa: PLC0415 - as above

    return KombuBroker(rabbitmq(url))


def _told_of(broker: Broker, url: str) -> Broker:
    """Return *broker*, telling what it carries where telemetry is on."""
    if switch.active is None:
        return broker
    from tidewheel.broker.watched import watched  # noqa: PLC0415 - only where telemetry is on

    scheme = url.partition("://")[0].lower()
    return watched(broker, "rabbitmq" if scheme in _RABBITMQ | {"pyamqp"} else scheme)


def _memory() -> MemoryBroker:
    """Return the one memory broker of this process, which every connection shares."""
    from tidewheel.broker.memory import MemoryBroker  # noqa: PLC0415 - only when it is used

    if not _of_this_process:
        _of_this_process.append(MemoryBroker())
    return _of_this_process[0]


def _embedded(path: Path) -> Broker:
    """Return the embedded broker in the file at *path*."""
    from tidewheel.broker.kombu_bridge import KombuBroker  # noqa: PLC0415 - kombu takes long to import
    from tidewheel.broker.kombu_wire import embedded  # noqa: PLC0415 - as above

    return KombuBroker(embedded(path))


def _rabbitmq(url: str) -> Broker:
    """Return the RabbitMQ broker at *url*."""
    from tidewheel.broker.rabbitmq.address import read_url  # noqa: PLC0415 - aiormq takes long to import
    from tidewheel.broker.rabbitmq.broker import RabbitBroker  # noqa: PLC0415 - as above

    return RabbitBroker(read_url(url))


def _foreign(url: str, scheme: str) -> Broker:
    """Return a broker over whatever kombu knows by *scheme*."""
    from tidewheel.broker.kombu_bridge import KombuBroker  # noqa: PLC0415 - as above
    from tidewheel.broker.kombu_wire import Target, transport_is_known  # noqa: PLC0415 - as above

    target = Target(url=url)
    if not transport_is_known(url):
        raise InvalidRequest(
            f"no broker is known for {scheme}://; use embedded:// or memory://, or install its library"
        )
    try:
        target.check()
    except ValueError as error:
        raise InvalidRequest(f"{_shown(url)!r} is no broker URL: {error}") from None
    return KombuBroker(target)


def _embedded_path(rest: str, store_url: str) -> Path:
    """Return the broker's file: the one named, or ``name.broker.db`` beside the store's ``name.db``."""
    if "?" in rest or "#" in rest:
        raise InvalidRequest(f"embedded:// takes no options, and got embedded://{rest}")
    if rest.strip("/"):
        if not rest.startswith("/"):
            raise InvalidRequest(
                f"embedded://{rest} names a host; write embedded:///{rest} for a file, or embedded:// alone"
            )
        # As with sqlite:///: three slashes name a file of the working directory, four one of the root.
        return Path(unquote(rest.removeprefix("/")))
    return _beside(store_url)


def _beside(store_url: str) -> Path:
    scheme, _, rest = store_url.partition("://")
    file = unquote(rest.partition("?")[0]).removeprefix("/")
    if scheme.partition("+")[0] not in _SQLITE:
        raise InvalidRequest(
            f"embedded:// puts its file beside a SQLite store, and the store is {_shown(store_url)!r}; "
            "write embedded:///path/to/file.db"
        )
    if not file or ":memory:" in file or "mode=memory" in rest:
        raise InvalidRequest(
            "embedded:// puts its file beside a SQLite store, and this one is in memory; "
            "write embedded:///path/to/file.db, or use memory://"
        )
    path = Path(file)
    return path.with_name(f"{path.stem}.broker{path.suffix or '.db'}")


def _shown(url: str) -> str:
    """Return *url* without a password."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return url.partition("://")[0] + "://..."
    return url.replace(f":{password}@", ":***@") if password else url
