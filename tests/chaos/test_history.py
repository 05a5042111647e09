"""How long a fault held runs up is worked out from when faults were over and when events were journaled."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chaos.history import Event, Fault, History, Kind, by_kind, quantile, standstills


def fault(kind: Kind, at: float, over_at: float | None = None) -> Fault:
    """A fault of this kind."""
    return Fault(kind=kind, how="test", at=at, over_at=at if over_at is None else over_at)


def recoveries(faults: list[Fault], journals: list[list[float]]) -> dict[Kind, list[float]]:
    """Return the seconds that runs with events at these times were held up."""
    runs = [(f"run-{number}", [Event(at, "any") for at in times]) for number, times in enumerate(journals)]
    return by_kind(standstills(faults, runs))


def test_a_run_stands_still_from_the_fault_to_its_next_event() -> None:
    """What it did before does not count, and neither does what comes after that event."""
    found = recoveries([fault("worker", 10.0)], [[8.0, 9.9, 10.5, 14.0]])

    assert found["worker"] == [0.5]


def test_a_server_is_given_the_time_that_it_is_away() -> None:
    """Recovery begins when it is back."""
    found = recoveries([fault("postgres", 10.0, 12.0)], [[9.9, 12.3]])

    assert [round(stood_s, 3) for stood_s in found["postgres"]] == [0.3]


def test_runs_that_were_not_held_up_do_not_count() -> None:
    """Those that had ended, that had not begun, and that went on as if nothing had happened."""
    journals = [[9.0, 10.05], [9.0, 11.5], [9.0, 10.5], [1.0, 9.9], [10.2, 30.0]]

    found = recoveries([fault("worker", 10.0)], journals)

    assert found["worker"] == [1.5, 0.5]


def test_a_run_that_waits_while_workers_die_waits_since_the_first_of_them() -> None:
    """Whatever the others did to it."""
    found = recoveries([fault("worker", 10.0), fault("worker", 11.0)], [[9.0, 11.25]])

    assert found["worker"] == [1.25]


def test_a_run_is_not_expected_to_go_on_without_a_server() -> None:
    """Workers that died while Postgres was away, and right after, make no difference."""
    faults = [fault("worker", 9.5), fault("postgres", 10.0, 11.0), fault("worker", 11.5)]

    found = recoveries(faults, [[9.0, 13.0], [12.0, 13.0]])

    assert found["postgres"] == [2.0]
    assert found["worker"] == []


def test_a_run_may_be_held_up_again_and_again() -> None:
    """Each time counts, for what was troubled."""
    faults = [
        fault("worker", 10.0),
        fault("worker", 20.0),
        fault("broker", 30.0, 35.0),
        fault("worker", 99.0),
    ]

    found = recoveries(faults, [[9.0, 10.5, 19.0, 22.0, 34.0, 36.0]])

    assert found["worker"] == [0.5, 2.0]
    assert found["broker"] == [1.0]


def test_a_quantile_is_a_value_that_was_there() -> None:
    """Of a hundred, the ninety-ninth is exceeded by one."""
    values = [float(number) for number in range(1, 101)]

    assert [quantile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [51.0, 96.0, 100.0, 100.0]
    assert quantile([], 0.99) == 0.0


def test_a_history_is_in_its_file_at_once(tmp_path: Path) -> None:
    """Whoever is killed leaves what it did behind, with its seed."""
    history = History(tmp_path / "history.jsonl", seed=7)
    history.add(fault("worker", 1.0))
    history.add(Fault(kind="broker", how="kill", at=1.0, over_at=2.0))

    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text("utf-8").splitlines()]

    history.close()
    assert lines[0] == {"seed": 7}
    assert [line["how"] for line in lines[1:]] == ["test", "kill"]
    assert (history.count("broker", "kill"), history.count("broker", "app"), history.count("worker")) == (
        1,
        0,
        1,
    )
