"""Where RabbitMQ is and how to speak to it, read from a URL.

What can be wrong with a URL is said here, before anything is connected, and never with the password.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from yarl import URL

from tidewheel.journal.errors import InvalidRequest

PORTS: Final = {"amqp": 5672, "amqps": 5671}
_VHOST_BYTES_MAX: Final = 255
_HEARTBEAT_MAX_S: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How the broker is known to be the right one, and how it knows us.

    Without ``cafile`` the machine's own certificate authorities are trusted. ``verify`` off means that
    anybody may answer: for a laboratory.
    """

    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises ``OSError`` for those that cannot be read."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.cafile)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certfile is not None:
            context.load_cert_chain(self.certfile, self.keyfile)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long is waited for what."""

    #: Without a word from the broker for two of these, the connection is given up.
    heartbeat_s: int = 10
    connect_s: float = 5.0
    #: For RabbitMQ to take what is published, also while it is short of memory or disk and takes nothing.
    publish_s: float = 10.0
    #: For an answer to anything else.
    answer_s: float = 10.0
    #: How often a consumer asks whether it is still one.
    check_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A RabbitMQ broker, and how to speak to it."""

    host: str
    port: int
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    tls: Tls | None = None
    external: bool = False
    name: str = "tidewheel"
    patience: Patience = Patience()

    @property
    def shown(self) -> str:
        """How to name it to people: without the password."""
        scheme = "amqp" if self.tls is None else "amqps"
        host = f"[{self.host}]" if ":" in self.host else self.host
        vhost = "" if self.vhost == "/" else "/" + quote(self.vhost, safe="")
        return f"RabbitMQ at {scheme}://{quote(self.user)}@{host}:{self.port}{vhost}"

    @property
    def for_aio_pika(self) -> URL:
        """The URL that aio-pika reads credentials, vhost and heartbeat from; it has the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        credentials = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        auth = "external" if self.external else "plain"
        vhost = quote(self.vhost, safe="")
        options = f"heartbeat={self.patience.heartbeat_s}&auth={auth}"
        return URL(f"amqp://{credentials}@{host}:{self.port}/{vhost}?{options}", encoded=True)


def read_url(url: str) -> Address:
    """Read *url*, or raise ``InvalidRequest``.

    ``amqp[s]://user:password@host:port/vhost``, with the options below after a question mark.
    Without a path the vhost is ``/``; so it is with ``/%2F``, and with a path of one or two slashes.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"this broker URL cannot be read: {error}") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise InvalidRequest(f"{scheme}:// is no RabbitMQ; write amqp:// or amqps://")
    if parts.fragment:
        raise InvalidRequest("a broker URL has nothing after '#'; write %23 for one in a name or password")
    options = _options(parts.query)
    tls = _tls(options) if scheme == "amqps" else None
    if tls is None and _TLS_OPTIONS & options.keys():
        raise InvalidRequest(
            f"{', '.join(sorted(_TLS_OPTIONS & options.keys()))}: only amqps:// is encrypted; "
            "write amqps:// to use it"
        )
    external = options.get("auth", "plain") == "external"
    if external and (tls is None or tls.certfile is None):
        raise InvalidRequest("auth=external needs amqps:// and a certfile: the certificate is the user")
    return Address(
        host=parts.hostname or "localhost",
        port=port or PORTS[scheme],
        user=unquote(parts.username) if parts.username else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=_vhost(parts.path),
        tls=tls,
        external=external,
        name=options.get("name", "tidewheel"),
        patience=Patience(**{_PATIENCE[name]: value for name, value in options.items() if name in _PATIENCE}),
    )


def _number(low: float, high: float, convert: Callable[[str], float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        number = convert(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return read


def _one_of(**meanings: Any) -> Callable[[str], Any]:
    return lambda text: meanings[text.lower()]


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise ValueError(text)
    return text


#: Options of the URL: how each is read, and what it has to be.
_OPTIONS: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "cafile": (_file, "a file with the certificates of the authorities to trust"),
    "certfile": (_file, "a file with the certificate of this client"),
    "keyfile": (_file, "a file with the key of that certificate"),
    "no_verify_ssl": (_one_of(**{"0": False, "1": True}), "1 to trust anybody, for a laboratory"),
    "auth": (_one_of(plain="plain", external="external"), "plain or external"),
    "name": (str, "what RabbitMQ shows as the name of the connection"),
    "heartbeat": (_number(1, _HEARTBEAT_MAX_S, int), f"whole seconds, from 1 to {_HEARTBEAT_MAX_S}"),
    "connect_timeout": (_number(0.1, 600, float), "seconds, from 0.1 to 600"),
    "publish_timeout": (_number(0.1, 600, float), "seconds, from 0.1 to 600"),
    "answer_timeout": (_number(0.1, 600, float), "seconds, from 0.1 to 600"),
    "check_interval": (_number(0.1, 3600, float), "seconds, from 0.1 to 3600"),
}
_TLS_OPTIONS: Final = frozenset({"cafile", "certfile", "keyfile", "no_verify_ssl"})
_PATIENCE: Final = {
    "heartbeat": "heartbeat_s",
    "connect_timeout": "connect_s",
    "publish_timeout": "publish_s",
    "answer_timeout": "answer_s",
    "check_interval": "check_s",
}


def _options(query: str) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise InvalidRequest(
                f"a broker URL has no option {name!r}; it has: {', '.join(sorted(_OPTIONS))}"
            )
        convert, meaning = _OPTIONS[name]
        try:
            read[name] = convert(text)
        except (ValueError, KeyError):
            raise InvalidRequest(f"the broker URL's {name}={text} has to be {meaning}") from None
    return read


def _tls(options: Mapping[str, Any]) -> Tls:
    if "keyfile" in options and "certfile" not in options:
        raise InvalidRequest("the broker URL has a keyfile and no certfile; give both")
    tls = Tls(
        cafile=options.get("cafile"),
        certfile=options.get("certfile"),
        keyfile=options.get("keyfile"),
        verify=not options.get("no_verify_ssl", False),
    )
    try:
        tls.context()
    except OSError as error:
        raise InvalidRequest(f"the certificates of the broker URL cannot be used: {error}") from None
    return tls


def _vhost(path: str) -> str:
    vhost = unquote(path.removeprefix("/"))
    if vhost in ("", "/"):
        return "/"
    if "/" in path.removeprefix("/"):
        raise InvalidRequest(
            f"the vhost in the broker URL is {vhost!r}; write its slashes as %2F, or leave out the last one"
        )
    if len(vhost.encode()) > _VHOST_BYTES_MAX:
        raise InvalidRequest(f"the vhost in the broker URL has more than {_VHOST_BYTES_MAX} bytes")
    return vhost
