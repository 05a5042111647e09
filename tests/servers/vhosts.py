"""Virtual hosts on a broker that others use too: each test gets one of its own, and leaves none behind.

A node of ours is asked over its control socket. A broker that was given by a URL is asked over its
management interface: by default at port 15672 of the same host, with the same account.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from tests.servers.control import Control
from tests.servers.places import ServerTrouble

_ANSWER_S_MAX = 10.0
_MANAGEMENT_PORT = 15_672


class VirtualHosts:
    """Makes virtual hosts at the broker *server*, an AMQP URL."""

    def __init__(self, server: str, *, control: str | None = None, management: str | None = None) -> None:
        self.server = server
        self._control = Control(Path(control)) if control else None
        self._management = _Management(server, management)

    @property
    def control(self) -> Control:
        """What steers the node; only a node of ours has it."""
        if self._control is None:
            raise ServerTrouble("a broker that was given by a URL is not to be steered: take own_rabbit")
        return self._control

    def create(self, name: str) -> str:
        """Create a virtual host in which the URL's account may do everything, and return its URL."""
        (self._control or self._management).add_vhost(name)
        return self.url_of(name)

    def delete(self, name: str) -> None:
        """Delete a virtual host with all that is in it."""
        (self._control or self._management).delete_vhost(name)

    def url_of(self, name: str) -> str:
        """Return where the virtual host is."""
        return urlunsplit(urlsplit(self.server)._replace(path="/" + quote(name, safe="")))


class _Management:
    """The HTTP interface of a broker."""

    def __init__(self, server: str, address: str | None) -> None:
        broker = urlsplit(server)
        self._address = address or f"http://{broker.hostname}:{_MANAGEMENT_PORT}"
        self._user, password = _account(urlsplit(self._address)) or _account(broker) or ("guest", "guest")
        self._key = base64.b64encode(f"{self._user}:{password}".encode()).decode()
        self._owner = (_account(broker) or ("guest", ""))[0]

    def add_vhost(self, name: str) -> None:
        vhost = quote(name, safe="")
        self._ask("PUT", f"vhosts/{vhost}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self._ask("PUT", f"permissions/{vhost}/{quote(self._owner, safe='')}", everything)

    def delete_vhost(self, name: str) -> None:
        self._ask("DELETE", f"vhosts/{quote(name, safe='')}", None)

    def _ask(self, verb: str, path: str, body: dict[str, str] | None) -> None:
        parts = urlsplit(self._address)
        host = parts.netloc.rpartition("@")[2]
        request = urllib.request.Request(  # noqa: S310 - the address is that of the developer's own broker
            f"{parts.scheme}://{host}{parts.path.rstrip('/')}/api/{path}",
            method=verb,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {self._key}", "Content-Type": "application/json"},
        )
        try:
            # The request above is what the rule is about.
            with urllib.request.urlopen(request, timeout=_ANSWER_S_MAX):  # noqa: S310
                return
        except urllib.error.HTTPError as problem:
            said = f"HTTP {problem.code} {problem.read().decode(errors='replace')}"
            problem.close()
        except OSError as problem:
            said = str(problem)
        raise ServerTrouble(
            f"{verb} {path} at RabbitMQ's management interface {parts.scheme}://{host}: {said}\n"
            "Each test process needs a virtual host of its own. Enable the plugin rabbitmq_management, say "
            "where it is in TIDEWHEEL_TEST_RABBITMQ_MANAGEMENT, or unset TIDEWHEEL_TEST_RABBITMQ."
        )


def _account(parts: SplitResult) -> tuple[str, str] | None:
    return (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
