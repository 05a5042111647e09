"""Child runs: each start, end and cancel is in one transaction with what it means to the other run."""

from __future__ import annotations

import pytest

from tests.conformance.store.driving import BROKEN, Run, done, ends, resumes, signal, task, waits
from tidewheel.journal import events as ev
from tidewheel.store.append import Append, Appended, Cancelled, ChildStart, Fate
from tidewheel.store.protocol import Store

CHILD = ChildStart(workflow="mail", version="3", digest="d", queue="post")


async def with_child(run: Run, path: str = "0") -> tuple[Appended, Run]:
    """Let *run* ask for a child and wait for it; return the answer and the child."""
    asked = task(path, kind="workflow", function_name="mail", input=["letter"], dispatch="queued")
    answer = await run.move(asked, waits(path), children={path: CHILD})
    child = Run(run.store, f"{run.ref.run_id.partition(':')[0]}:{path}")
    if answer.fate is Fate.COMMITTED:
        await child.see()
    return answer, child


async def test_a_child_is_started_with_its_schedule(run: Run) -> None:
    """One commit has the parent's schedule, its start, and the child's own journal."""
    answer, child = await with_child(run)

    (first,) = await child.journal()
    assert isinstance(first.event, ev.ExecutionStarted)
    assert (first.event.input, first.event.parent_id, first.event.run_id) == (["letter"], "r", "r:0")
    record = await child.record()
    assert (record.workflow, record.version, record.queue) == ("mail", "3", "post")
    assert record.parent_key == (await run.record()).key
    assert record.path == "0"
    assert [(hint.run, hint.queue, hint.path) for hint in answer.hints] == [(child.ref, "post", None)]
    assert (await run.story())[-3:] == ["InvokeScheduled", "ExecutionAwaiting", "InvokeStarted"]


async def test_a_stale_parent_starts_no_child(run: Run) -> None:
    """Moves that are dropped leave no child behind."""
    run.token = b"other"

    answer, child = await with_child(run)

    assert answer.fate is Fate.STALE
    assert await run.store.find(child.ref) is None


async def test_a_childs_end_is_its_parents_completion(run: Run) -> None:
    """One commit has both, and wakes the parent."""
    _, child = await with_child(run)

    answer = await child.move(ends({"sent": True}))

    last = (await run.journal())[-1].event
    assert last == ev.InvokeCompleted(promise_id="0", result=ev.Result(ok={"sent": True}), attempt=1)
    assert [hint.run for hint in answer.hints] == [run.ref]
    assert [end.run for end in answer.ended] == [child.ref]
    assert (await run.record()).wake_at is not None
    assert not await run.has_step()


@pytest.mark.parametrize(
    ("end", "error_type"),
    [
        (ev.ExecutionFailed(error=BROKEN), "Broken"),
        (ev.ExecutionCancelled(reason="enough"), "RunCancelled"),
    ],
)
async def test_a_childs_bad_end_is_an_error_to_its_parent(run: Run, end: ev.Event, error_type: str) -> None:
    """The parent's code gets it as it gets a step's error."""
    _, child = await with_child(run)

    await child.move(end)

    last = (await run.journal())[-1].event
    assert isinstance(last, ev.InvokeCompleted)
    assert isinstance(last.result.error, ev.Error)
    assert last.result.error.type == error_type


async def test_a_parent_and_its_child_in_one_batch(run: Run) -> None:
    """The parent's own append after its child's end sees the completion as landed."""
    _, child = await with_child(run)

    ended, told = await run.store.append(
        [
            Append(run=child.ref, moves=child.moves(ends(1))),
            Append(run=run.ref, facts=(signal(),)),
        ]
    )

    assert (ended.fate, told.last_seq) == (Fate.COMMITTED, 5)
    assert (await run.story())[-2:] == ["InvokeCompleted", "SignalDelivered"]


async def test_grandchildren_continue_the_path(run: Run) -> None:
    """A child's child is a position in the same tree, and reports to its own parent."""
    _, child = await with_child(run)
    _, grandchild = await with_child(child, "0.0")

    await grandchild.move(ends(7))

    assert grandchild.ref.run_id == "r:0.0"
    assert (await child.story())[-1] == "InvokeCompleted"
    assert (await run.story())[-1] == "InvokeStarted"


@pytest.mark.parametrize(
    "closing",
    [
        (ends(),),
        (ev.ExecutionFailed(error=BROKEN),),
        (ev.ExecutionContinued(next_position=1), ev.ExecutionStarted()),
    ],
    ids=["end", "failure", "continue-as-new"],
)
async def test_open_children_are_cancelled_when_their_parent_closes(
    run: Run, closing: tuple[ev.Event, ...]
) -> None:
    """What a segment leaves behind is asked to stop, in the same commit."""
    _, child = await with_child(run)
    await run.tell(signal())
    await run.see()

    answer = await run.move(resumes(), *closing)

    assert answer.fate is Fate.COMMITTED
    assert (await child.story())[-1] == "CancelRequested"
    assert (await child.record()).cancelling
    assert child.ref in [end.run for end in answer.hints] or (await child.record()).wake_at is not None


async def test_a_child_of_a_closed_segment_ends_alone(run: Run) -> None:
    """Its result has nowhere to go: the parent's new segment is not disturbed."""
    _, child = await with_child(run)
    await run.move(resumes(), ev.ExecutionContinued(next_position=1), ev.ExecutionStarted())
    before = await run.journal()
    await child.see()

    answer = await child.move(ev.ExecutionCancelled())

    assert answer.fate is Fate.COMMITTED
    assert await run.journal() == before


async def test_a_child_that_ended_is_not_cancelled(run: Run) -> None:
    """Its journal stays as it ended."""
    _, child = await with_child(run)
    await child.move(ends())
    await run.see()

    await run.move(resumes("0"), ends())

    assert await child.story() == ["ExecutionStarted", "ExecutionCompleted"]


async def test_a_child_that_is_given_up_is_cancelled_once(run: Run) -> None:
    """The parent goes on without it, and hears of its end all the same."""
    _, child = await with_child(run)

    await run.move(resumes(), waits(), abandoned=("0",))
    await run.move(abandoned=("0",))
    await child.see()
    await child.move(ev.ExecutionCancelled())

    assert (await child.story()).count("CancelRequested") == 1
    assert (await run.story())[-1] == "InvokeCompleted"


async def test_cancelling_a_parent_reaches_its_child_only_through_the_code(run: Run) -> None:
    """The parent's code may want to wait for it; nothing happens to the child by itself."""
    _, child = await with_child(run)

    await run.tell(Cancelled(reason="enough"))

    assert await child.story() == ["ExecutionStarted"]


async def test_a_child_and_its_parent_end_in_one_batch(run: Run, store: Store) -> None:
    """The parent that ends first has cancelled its child; the child's end finds nobody to tell."""
    _, child = await with_child(run)

    first, second = await store.append(
        [
            Append(run=run.ref, moves=run.moves(resumes(), ends())),
            Append(run=child.ref, moves=child.moves(ends())),
        ]
    )

    assert (first.fate, second.fate) == (Fate.COMMITTED, Fate.COMMITTED)
    assert (await run.story())[-1] == "ExecutionCompleted"
    assert (await child.story())[-2:] == ["CancelRequested", "ExecutionCompleted"]


async def test_a_childs_late_step_is_refused(run: Run) -> None:
    """A parent cannot be told of its child's end by a step's report."""
    _, child = await with_child(run)
    await child.move(ends())

    answer = await run.tell(done("0"))

    assert (await run.story()).count("InvokeCompleted") == 1
    assert answer.verdicts[0].value == "late"
