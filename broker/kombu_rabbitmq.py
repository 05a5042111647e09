"""RabbitMQ through kombu: what a client uses that has no event loop of its own.

It reads the same URL as the broker of workers, and declares the very same queues, so that it does not
matter who comes first. Publishing is confirmed, over a few connections; every wait for the network is
bounded. A dead letter's reason is not written here: a client has no work to bury.
"""

from __future__ import annotations

import ssl
from typing import Any

from tidewheel.broker.kombu_wire import Target
from tidewheel.broker.rabbitmq.address import Address, Tls, read_url
from tidewheel.broker.rabbitmq.declarations import queue_arguments

#: Connections that publish, per process. They are made when that many are needed at once.
PUBLISHERS_MAX = 8


def rabbitmq(url: str) -> Target:
    """Return the RabbitMQ at *url*, or raise ``InvalidRequest``."""
    address = read_url(url)
    patience = address.patience
    return Target(
        transport="pyamqp",
        options={
            "confirm_publish": True,
            "read_timeout": patience.answer_s,
            "write_timeout": patience.answer_s,
            "client_properties": {"connection_name": f"{address.name} blocking", "product": "tidewheel"},
        },
        parameters=_parameters(address),
        publishing={"timeout": patience.answer_s, "confirm_timeout": patience.publish_s},
        arguments=queue_arguments,
        wires_max=PUBLISHERS_MAX,
    )


def _parameters(address: Address) -> dict[str, Any]:
    """Return where it is and who we are, in kombu's words."""
    return {
        "hostname": address.host,
        "port": address.port,
        "userid": address.user,
        "password": address.password,
        "virtual_host": address.vhost,
        "login_method": "EXTERNAL" if address.external else "PLAIN",
        "ssl": False if address.tls is None else _tls(address.tls, address.host),
        "connect_timeout": address.patience.connect_s,
    }


def _tls(tls: Tls, host: str) -> dict[str, Any]:
    """Return what the driver has to know. By itself it would check the certificate, but not whose it is."""
    options = {
        "ca_certs": tls.cafile,
        "certfile": tls.certfile,
        "keyfile": tls.keyfile,
        "tls_minimum_version": ssl.TLSVersion.TLSv1_2,
    }
    if not tls.verify:
        return {**options, "cert_reqs": ssl.CERT_NONE}
    return {**options, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": host}
