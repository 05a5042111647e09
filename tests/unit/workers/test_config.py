"""The settings of workers and keepers, and the page that lists every setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel import InvalidRequest
from tidewheel.sdk.settings_page import CLASSES, document
from tidewheel.workers.config import KeeperConfig, WorkerConfig

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the sdist has no docs")
def test_the_page_lists_every_setting_as_it_is() -> None:
    """``make docs`` writes it; a setting that is not on it would be a secret."""
    page = document([*CLASSES, WorkerConfig, KeeperConfig])

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
