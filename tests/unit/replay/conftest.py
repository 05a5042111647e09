"""Fixtures for the tests of replay."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[False, True], ids=["warm", "cold"])
def cold(request: pytest.FixtureRequest) -> bool:
    """Keep the run in memory between activations, or replay it from its journal each time."""
    return bool(request.param)
