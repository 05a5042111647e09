"""RabbitMQ through kombu: what a client uses that has no event loop of its own.

Publishing is confirmed, over a few connections; every wait for the network is bounded. Whatever is said
in the URL means what it means to the broker of workers: both read it alike.
"""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tidewheel.broker.kombu_wire import ABILITIES, Target, queue_arguments
from tidewheel.broker.topology import Queue

#: Connections that publish, per process. They are made when that many are needed at once.
PUBLISHERS_MAX = 4
#: How long connecting may take, in seconds; then a word from the broker, then its taking of a message.
CONNECT_MAX_S, ANSWER_MAX_S, CONFIRM_MAX_S = 5.0, 10.0, 10.0

_PORT, _TLS_PORT = 5672, 5671


def rabbitmq(url: str) -> Target:
    """Return the RabbitMQ at *url*."""
    parts = urlsplit(url)
    is_tls = parts.scheme.lower() == "amqps"
    host = parts.hostname or "localhost"
    return Target(
        transport="pyamqp",
        options={"confirm_publish": True, "read_timeout": ANSWER_MAX_S, "write_timeout": ANSWER_MAX_S},
        parameters={
            "hostname": host,
            "port": parts.port or (_TLS_PORT if is_tls else _PORT),
            "userid": unquote(parts.username or "guest"),
            "password": unquote(parts.password or "guest"),
            "virtual_host": unquote(parts.path[1:]) or "/",
            "ssl": _tls(host, parts.query) if is_tls else False,
            "connect_timeout": CONNECT_MAX_S,
        },
        publishing={"timeout": ANSWER_MAX_S, "confirm_timeout": CONFIRM_MAX_S},
        arguments=_arguments,
        has=frozenset(ABILITIES) - {"dead-letters"},  # they are kept, but do not say why
        wires_max=PUBLISHERS_MAX,
    )


def _tls(host: str, query: str) -> dict[str, Any]:
    """Return what the driver has to know; without a word in *query*, certificate and name are checked."""
    said = {name: values[-1] for name, values in parse_qs(query).items()}
    options = {
        "ca_certs": said.get("cafile"),
        "certfile": said.get("certfile"),
        "keyfile": said.get("keyfile"),
    }
    if said.get("no_verify_ssl", "0") != "0":
        return {**options, "cert_reqs": ssl.CERT_NONE}
    return {**options, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": host}


def _arguments(queue: Queue) -> dict[str, Any]:
    arguments = queue_arguments(queue)
    if queue.expires_s is None:
        arguments["x-queue-type"] = "quorum"
    if queue.delivery_limit is not None:
        arguments["x-delivery-limit"] = queue.delivery_limit - 1
    return arguments
