"""A plan is the seed's, and what was done of it too little, or too slowly, is a complaint."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.chaos.findings import Finding, Report
from tests.chaos.history import Fault, Kind, Standstill
from tests.chaos.plan import Plan, long_plan, short_plan
from tests.chaos.storm import Outcome
from tests.chaos.verdict import complaints, shown


def test_the_long_form_does_what_was_promised() -> None:
    """1,000 kills, 50 crashes of Postgres, 20 restarts of the broker, 5 of them kills, 50 storms."""
    plan = long_plan(seed=1, runs=10_000, minutes=25)

    assert (plan.kills, plan.per_point) == (1_000, 20)
    kinds = Counter(trouble.partition(" ")[0] for _, trouble in plan.schedule())
    assert kinds == {"postgres": 50, "broker": 20, "network": 50}
    assert plan.troubles["broker kill"] == 5


@pytest.mark.parametrize("plan", [short_plan(3), long_plan(seed=3, runs=2_000, minutes=5)])
def test_a_plan_is_the_seeds(plan: Plan) -> None:
    """The same seed gives the same schedule, another one another; it rises, and leaves both ends calm."""
    schedule = plan.schedule()

    assert schedule == plan.schedule() != replace(plan, seed=4).schedule()
    assert [share for share, _ in schedule] == sorted(share for share, _ in schedule)
    assert 0.0 < schedule[0][0] < schedule[-1][0] < 1.0
    shares = [plan.share_before_kill(number) for number in range(plan.kills + 50)]
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < shares[-1] < 1.0


def held(kind: Kind, seconds: float) -> Standstill:
    """A run that was held up."""
    fault = Fault(kind=kind, how="test", at=1.0, over_at=1.0)
    return Standstill(kind=kind, fault=fault, seconds=seconds, run_id="run", before="a", after="b")


def outcome() -> Outcome:
    """One that there is nothing to say against."""
    plan = Plan(
        seed=1,
        runs=2,
        kills=2,
        per_point=1,
        troubles={"postgres crash": 1},
        open_max=1,
        limit_s=1.0,
    )
    faults = [Fault(kind="worker", how="any moment", at=1.0, over_at=1.0, pid=1)] * 2
    return Outcome(
        plan=plan,
        seconds=1.0,
        started=2,
        completed=2,
        wrong=[],
        troubles={},
        faults=[*faults, Fault(kind="postgres", how="crash", at=1.0, over_at=2.0)],
        hits={"store.now:before": 1},
        wanted=["store.now:before"],
        report=Report(runs=2, events=30, executions=4),
        standstills=[held("worker", 0.1), held("postgres", 1.0)],
    )


def test_a_good_outcome_is_shown_without_complaint() -> None:
    """Everything that people want to know is in it."""
    text = shown(outcome())

    assert list(complaints(outcome())) == []
    for part in ("seed 1", "2 completed", "worker SIGKILL 2, postgres crash 1", "points: 1", "recovery"):
        assert part in text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"wrong": ["errand-000001 came to 1"]}, "came to 1"),
        (
            {"report": Report([Finding("checksum", "a", 1, "bad")], runs=2, events=30)},
            "checksum: a at 1: bad",
        ),
        ({"completed": 1}, "1 runs completed of 2"),
        ({"report": Report(runs=2, events=19)}, "19 events are fewer than 10 for each run"),
        ({"faults": outcome().faults[1:]}, "1 workers killed of 2"),
        ({"faults": outcome().faults[:2]}, "postgres crash: 0 of 1"),
        ({"hits": {}}, "store.now:before"),
        ({"standstills": [held("worker", 2.5)]}, "worker faults takes 2.50 s"),
        ({"standstills": [held("broker", 5.5)]}, "broker faults takes 5.50 s"),
    ],
)
def test_a_bad_outcome_is_complained_of(change: dict[str, object], complaint: str) -> None:
    """Whatever is wrong, and whatever was done too little."""
    wrong = list(complaints(replace(outcome(), **change)))  # type: ignore[arg-type]  # each is a field

    assert len(wrong) == 1
    assert complaint in wrong[0]
