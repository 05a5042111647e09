"""An encrypted connection is made to the right broker only, and says who we are if asked."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from pamqp import commands

from tests.unit.broker.scripted_broker import scripted_broker
from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.broker.rabbitmq.address import read_url
from tidewheel.broker.rabbitmq.broker import RabbitBroker


class Certificates:
    """An authority, a server's certificate for *host*, and a client's, as files in *folder*."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self._server = self._authority.issue_cert(host)
        client = self._authority.issue_cert("client")
        client.private_key_pem.write_to_path(str(folder / "key.pem"))
        client.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))

    def context(self, *, asks_clients: bool = False) -> ssl.SSLContext:
        """Return what a server encrypts with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server.configure_cert(context)
        self._authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED if asks_clients else ssl.CERT_NONE
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Certificates for the address that the scripted broker has."""
    return Certificates(tmp_path / "right", "127.0.0.1")


async def depth(url: str) -> int:
    """Connect to *url* and ask something."""
    broker = RabbitBroker(read_url(url))
    try:
        return await broker.depth("q")
    finally:
        await broker.close()


async def test_a_broker_with_the_right_certificate_is_spoken_to(certificates: Certificates) -> None:
    """The authority is the one in the file that the URL names."""
    async with scripted_broker(
        f"?cafile={certificates.folder}/ca.pem", context=certificates.context()
    ) as server:
        assert await depth(server.url) == 0


async def test_a_certificate_of_nobody_we_trust_is_refused(certificates: Certificates) -> None:
    """Verification is on by default: without the file only the machine's authorities are trusted."""
    async with scripted_broker(context=certificates.context()) as server:
        with pytest.raises(BrokerUnavailable, match=r"certificate cannot be trusted .*give the right cafile"):
            await depth(server.url)

        assert await depth(f"{server.url}?no_verify_ssl=1") == 0


async def test_a_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    """It proves that somebody is somebody else."""
    other = Certificates(tmp_path, "elsewhere.example")
    async with scripted_broker(f"?cafile={other.folder}/ca.pem", context=other.context()) as server:
        with pytest.raises(BrokerUnavailable, match=r"certificate cannot be trusted .*mismatch"):
            await depth(server.url)


async def test_a_broker_that_asks_gets_our_certificate(certificates: Certificates) -> None:
    """With ``auth=external`` the certificate is the user: no password is sent."""
    folder = certificates.folder
    trusting = f"?cafile={folder}/ca.pem"
    known = f"{trusting}&certfile={folder}/cert.pem&keyfile={folder}/key.pem"
    async with scripted_broker(context=certificates.context(asks_clients=True)) as server:
        with pytest.raises(BrokerUnavailable):
            await depth(server.url + trusting)

        assert await depth(f"{server.url}{known}&auth=external") == 0

        (_, start) = (await server.hears(commands.Connection.StartOk))[-1]
        assert (start.mechanism, start.response) == ("EXTERNAL", "")
