"""A URL says where RabbitMQ is and how to speak to it, or is refused: with the reason, not the password."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from tidewheel.broker.rabbitmq.address import Address, Patience, Tls, read_url
from tidewheel.journal.errors import InvalidRequest

ODD_PASSWORD = "p/w:"  # noqa: S105 - made up


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with an authority, and a certificate of its with a key."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("client")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    return tmp_path


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://", Address(host="localhost", port=5672)),
        ("AMQP://mq", Address(host="mq", port=5672)),
        ("amqp://mq:1234/", Address(host="mq", port=1234)),
        ("amqp://mq//", Address(host="mq", port=5672)),
        ("amqp://mq/%2F", Address(host="mq", port=5672)),
        ("amqp://mq/shop", Address(host="mq", port=5672, vhost="shop")),
        ("amqp://mq/a%2Fb", Address(host="mq", port=5672, vhost="a/b")),
        ("amqp://[::1]:1/", Address(host="::1", port=1)),
        ("amqp://me@mq", Address(host="mq", port=5672, user="me")),
        ("amqp://m%40e:p%2Fw%3A@mq", Address(host="mq", port=5672, user="m@e", password=ODD_PASSWORD)),
        ("amqps://mq", Address(host="mq", port=5671, tls=Tls())),
        ("amqps://mq?no_verify_ssl=1", Address(host="mq", port=5671, tls=Tls(verify=False))),
        ("amqp://mq?name=pod-7", Address(host="mq", port=5672, name="pod-7")),
        (
            "amqp://mq?heartbeat=5&publish_timeout=2.5&connect_timeout=1&answer_timeout=3&check_interval=7",
            Address(
                host="mq",
                port=5672,
                patience=Patience(heartbeat_s=5, publish_s=2.5, connect_s=1.0, answer_s=3.0, check_s=7.0),
            ),
        ),
    ],
)
def test_a_url_is_read(url: str, address: Address) -> None:
    """What is not said has its default; what is said is taken, decoded."""
    assert read_url(url) == address


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://me:secret@mq:port/", "cannot be read"),
        ("amqp://me:secret@mq:99999/", "cannot be read"),
        ("http://me:secret@mq/", "write amqp:// or amqps://"),
        ("amqp://me:secret@mq/a/b", "%2F"),
        ("amqp://me:secret@mq/shop/", "leave out the last one"),
        ("amqp://me:secret@mq/" + 300 * "x", "255 bytes"),
        ("amqp://me:secret@mq/#x", "nothing after '#'"),
        ("amqp://me:secret@mq/?heartbaet=5", "no option 'heartbaet'; it has: .*heartbeat"),
        ("amqp://me:secret@mq/?heartbeat=often", "heartbeat=often has to be whole seconds"),
        ("amqp://me:secret@mq/?heartbeat=0", "from 1 to"),
        ("amqp://me:secret@mq/?publish_timeout=nan", "seconds, from"),
        ("amqp://me:secret@mq/?auth=magic", "plain or external"),
        ("amqp://me:secret@mq/?auth=external", "needs amqps"),
        ("amqp://me:secret@mq/?no_verify_ssl=1", "write amqps"),
        ("amqps://me:secret@mq/?cafile=/no/such/file.pem", "cafile=.* has to be a file"),
        ("amqps://me:secret@mq/?no_verify_ssl=maybe", "laboratory"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, says: str) -> None:
    """The error says what is wrong, and never the password."""
    with pytest.raises(InvalidRequest, match=says) as caught:
        read_url(url)

    assert "secret" not in str(caught.value)


def test_certificates_are_read_from_files(certificates: Path) -> None:
    """Verification is on; the authority and the client's own certificate are those named."""
    files = "&".join(f"{option}file={certificates}/{option}.pem" for option in ("cert", "key"))

    tls = read_url(f"amqps://mq?cafile={certificates}/ca.pem&{files}&auth=external").tls

    assert tls is not None
    context = tls.context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_files_that_are_no_certificates_are_refused(certificates: Path) -> None:
    """Before anything is connected, and a key without a certificate too."""
    nonsense = certificates / "nonsense.pem"
    nonsense.write_text("nonsense")

    with pytest.raises(InvalidRequest, match="cannot be used"):
        read_url(f"amqps://mq?cafile={nonsense}")
    with pytest.raises(InvalidRequest, match="give both"):
        read_url(f"amqps://mq?keyfile={certificates}/key.pem")


def test_the_password_is_not_shown() -> None:
    """Neither to people nor where a value is printed."""
    address = read_url("amqp://me:secret@mq:1/a%2Fb")

    assert address.shown == "RabbitMQ at amqp://me@mq:1/a%2Fb"
    assert "secret" not in repr(address)
    assert str(address.for_aio_pika).startswith("amqp://me:secret@mq:1/a%2Fb?")
