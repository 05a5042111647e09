"""The settings of workers and keepers, and the page that lists every setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel import InvalidRequest
from tidewheel.outbox.config import RelayConfig
from tidewheel.projector.config import ProjectorConfig
from tidewheel.sdk.settings_page import CLASSES, document
from tidewheel.workers.config import EventLoopConfig, KeeperConfig, ProcessConfig, WorkerConfig, parse_address
from tidewheel.workers.write_budget import StateStoreConfig

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the sdist has no docs")
def test_the_page_lists_every_setting_as_it_is() -> None:
    """``make docs`` writes it; a setting that is not on it would be a secret."""
    workers = (WorkerConfig, StateStoreConfig, KeeperConfig, ProcessConfig, EventLoopConfig)
    page = document([*CLASSES, *workers, RelayConfig, ProjectorConfig])

    assert PAGE.read_text(encoding="utf-8") == page


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDEWHEEL_QUEUES", "a.b"),
        ("TIDEWHEEL_QUEUES", "a,a"),
        ("TIDEWHEEL_SLOTS", "0"),
        ("TIDEWHEEL_PREFETCH", "many"),
        ("TIDEWHEEL_LEASE", "nan"),
        ("TIDEWHEEL_GRACE", "-1"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(variable: str, value: str) -> None:
    """At the start, not when it is first used."""
    with pytest.raises(InvalidRequest, match=variable):
        WorkerConfig.from_environment({variable: value})


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("10.0.0.7:8080", "10.0.0.7", 8080), ("localhost:0", "localhost", 0), ("[::1]:80", "::1", 80)],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    """Brackets tell an IPv6 address from its port, as in a URL."""
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["8080", ":8080", "host:", "host:http", "::1:80", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    """An empty host is not taken for all interfaces: whoever means that says so."""
    with pytest.raises(InvalidRequest, match="TIDEWHEEL_HEALTH"):
        ProcessConfig.from_environment({"TIDEWHEEL_HEALTH": text})
