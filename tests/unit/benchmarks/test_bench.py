"""The benchmark's own arithmetic: what is compared with what, and when a target counts as met."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import tidewheel.store.postgres
from benchmarks import machine
from benchmarks.report import document, table, verdicts
from benchmarks.rounds import Bench, Series
from benchmarks.systems import PEERS, SYSTEMS, TIDEWHEEL, Driver
from benchmarks.workload import Figure, Measured, Target, Workload, known, percentile
from benchmarks.workloads import w12_outbox_row


def never(_driver: Driver, _sizes: Mapping[str, int]) -> Measured:
    """Stands where a measurement would."""
    raise AssertionError


def bench(target: Target, **medians: list[float]) -> Bench:
    """Return a bench that has measured these values of one figure, by system."""
    workload = Workload(
        name="W",
        title="a workload",
        figures=(Figure("rate", "things/s", "more"),),
        systems=(TIDEWHEEL, *PEERS),
        measure=never,
        full={},
        quick={},
        targets=(target,),
    )
    found = Bench([workload], list(SYSTEMS), 1, quick=False, say=lambda _: None)
    for name, values in medians.items():
        series = Series(workload, SYSTEMS[name], [{"rate": value, "noise": 0.0} for value in values])
        found.series["W", name] = series
    return found


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target("rate", at_least=4.0), True),
        (Target("rate", at_least=4.5), False),
        (Target("rate", at_least=20.0, of="dbos"), True),
        (Target("rate", at_most=4.0), True),
        (Target("rate", at_most=7_999.0, of=None), False),
    ],
)
def test_a_target_is_judged_by_medians_next_to_the_best_peer(target: Target, met: bool) -> None:
    """The fastest peer counts, not the slowest, and one lucky round does not."""
    measured = bench(target, tidewheel=[8_000.0, 99_000.0, 1.0], restate=[2_000.0], dbos=[400.0])

    ((_, found),) = verdicts(measured)

    assert found is met


def test_a_target_without_anybody_to_be_held_against_is_not_judged() -> None:
    """A peer that cannot be had here makes nothing met, and nothing missed."""
    assert list(verdicts(bench(Target("rate", at_least=4.0), tidewheel=[1.0]))) == []


def test_a_target_may_be_held_against_peers_in_another_workload() -> None:
    """Ours does more there than theirs do here: it is their figure of the workload that the target names."""
    measured = bench(Target("rate", at_least=1.0, within="V"), tidewheel=[2_500.0], restate=[9_000.0])
    measured.series["V", "restate"] = Series(measured.workloads[0], SYSTEMS["restate"], [{"rate": 2_000.0}])

    ((told, met),) = verdicts(measured)

    assert met
    assert "1.25 times that of peers in V" in told


def test_the_table_says_who_was_left_out_and_what_failed() -> None:
    """Nothing disappears silently."""
    measured = bench(Target("rate", at_least=4.0), tidewheel=[2.0], restate=[4.0], celery=[])
    measured.missing["absurd"] = "its SQL cannot be had"
    measured.series["W", "celery"].failures.append("it ended")

    text = "\n".join(table(measured))

    assert "absurd was left out: its SQL cannot be had" in text
    assert "failed 1 times, last: it ended" in text
    assert "2.00 x" in text


def test_the_document_has_every_value() -> None:
    """Medians can be worked out again from what is written."""
    written = document(bench(Target("rate", at_least=1.0), tidewheel=[3.0, 1.0, 2.0], dbos=[1.0]), 1.0)

    ours = written["workloads"][0]["systems"][0]

    assert (ours["medians"], [value["rate"] for value in ours["rounds"]]) == ({"rate": 2.0}, [3.0, 1.0, 2.0])
    assert written["targets"][0]["met"] is True


def test_every_workload_can_be_measured() -> None:
    """Each has sizes for both benches, figures for its targets, and a name of its own."""
    workloads = known()

    assert len({workload.name for workload in workloads}) == len(workloads)
    for workload in workloads:
        assert workload.full.keys() == workload.quick.keys(), workload.name
        figures = {figure.name for figure in workload.figures}
        assert {target.figure for target in workload.targets} <= figures, workload.name
        assert {target.ours for target in workload.targets} <= {one.name for one in workload.systems}


def test_the_row_for_the_event_bus_can_be_taken_out_of_what_writes_it() -> None:
    """Each function of ours that writes it has one statement for it, and keeps all others."""
    functions = Path(tidewheel.store.postgres.__file__).with_name("functions")
    texts = [file.read_text("utf-8") for file in functions.glob("*.sql")]
    writing = [text for text in texts if "INTO tidewheel_outbox" in text]

    assert len(writing) == 2
    for text in writing:
        changed = w12_outbox_row.without_row(text)
        assert "INTO tidewheel_outbox" not in changed
        assert text.count(";") - changed.count(";") == 1


def test_percentiles() -> None:
    """Of a hundred values the 99th percentile is the last."""
    values = [float(number) for number in range(100)]

    assert [percentile(values, share) for share in (0.5, 0.95, 0.99)] == [50.0, 95.0, 99.0]


def test_cpu_time_is_that_of_the_whole_tree() -> None:
    """A child of a child is counted, one that has ended too; others are not."""
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); sys.stdin.read()"
    tree = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while machine.cpu_of_trees({"it": tree.pid})["it"] < 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert machine.cpu_of_trees({"nobody": 2**22 + os.getpid()}) == {"nobody": 0.0}
    finally:
        tree.kill()
        tree.communicate()
