"""Payloads in fresh processes: one order, and no import that nobody asked for."""

from __future__ import annotations

import pathlib
import subprocess
import sys


def test_sets_are_written_in_one_order() -> None:
    """The hash seed of the process does not show in the journal."""
    code = "from tidewheel.sdk.payload import encode; print(encode({'b', 'a', 'c', 'd', 'e'}))"

    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(pathlib.Path(__file__).parents[3] / "src")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }

    assert said == {"['a', 'b', 'c', 'd', 'e']\n"}


def test_pydantic_is_not_imported_for_values_without_models() -> None:
    """It is an optional dependency."""
    code = (
        "import dataclasses, sys; from tidewheel.sdk.payload import decode, encode;"
        "A = dataclasses.make_dataclass('A', [('x', int)]);"
        "decode(encode(A(1)), A, where='it'); print('pydantic' in sys.modules)"
    )

    said = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(pathlib.Path(__file__).parents[3] / "src")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout == "False\n"
