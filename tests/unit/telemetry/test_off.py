"""What is off costs nothing: OpenTelemetry is not imported, and nothing is called for a step."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.unit.workers.house import House
from tidewheel import App, Context

#: Where whatever tells something is.
TELLING = ("telling.py", "watched.py", "watching.py")

app = App("silent")


@app.task
async def pick(number: int) -> int:
    """A step."""
    return number


@app.workflow
async def order(ctx: Context, steps: int) -> int:
    """Steps, one after the other."""
    return sum([await ctx.invoke(pick, number) for number in range(steps)])


@pytest.mark.parametrize(
    "modules",
    [
        "tidewheel",
        "tidewheel.cli.main",
        "tidewheel.cli.roles.serving",
        "tidewheel.workers.worker, tidewheel.outbox.relay, tidewheel.projector.projector",
        "tidewheel.workers.task_process",
    ],
)
def test_opentelemetry_is_not_imported(modules: str) -> None:
    """Neither by the library nor by the command."""
    script = f"import {modules}, sys; print([name for name in sys.modules if 'opentelemetry' in name])"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_nor_by_a_run_from_start_to_end() -> None:
    """A client, a worker, a relay and a projector do without it."""
    script = (Path(__file__).parent / "silent_run.py").read_text("utf-8")

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stdout.splitlines() == ["1", "[]"], done.stderr


async def test_nothing_is_called_for_a_step(house: House) -> None:
    """A run of many steps calls nothing of what tells, and nothing of what would take it."""
    client = await house.client()
    await house.worker(app)
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        file = Path(frame.f_code.co_filename)
        is_ours = file != Path(__file__) and file.parent.name == "telemetry"
        if event == "call" and (file.name in TELLING or is_ours):
            called[f"{file.name}:{frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        result = await (await client.start(order, 50)).result()
    finally:
        sys.setprofile(None)

    assert result == sum(range(50))
    assert called == {}
