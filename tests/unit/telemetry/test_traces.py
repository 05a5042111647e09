"""Traces of runs: what is in one trace, what only links, and that replay tells nothing."""

from __future__ import annotations

import msgspec
import pytest
from opentelemetry import trace

from tests.unit.telemetry.recording import (
    Recording,
    attributes,
    linked,
    parent_id,
    span_id,
    trace_id,
)
from tests.unit.workers.house import House
from tidewheel import App, Context, Retry
from tidewheel.broker.message import Message, Publication
from tidewheel.broker.topology import COMMANDS
from tidewheel.journal import events as ev
from tidewheel.store.records import RunRef
from tidewheel.telemetry import names
from tidewheel.telemetry.context import made_of
from tidewheel.telemetry.runs import RunTraces
from tidewheel.workers.config import WorkerConfig

app = App("traced")
failures = {"left": 0}


@app.task(retry=Retry(max_attempts=3, initial=1.0))
async def pick(number: int) -> int:
    """A step that may fail a few times."""
    if failures["left"]:
        failures["left"] -= 1
        raise ValueError("not yet")
    return number


@app.task(queue="far")
async def carry(number: int) -> str:
    """A step that goes over a queue, and says in which trace it is."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}"


@app.workflow
async def order(ctx: Context, number: int) -> int:
    """Two steps, one after the other."""
    first = await ctx.invoke(pick, number)
    return first + await ctx.invoke(pick, number)


@app.workflow
async def nap(ctx: Context, seconds: float) -> int:
    """A step after a sleep."""
    await ctx.sleep(seconds)
    return await ctx.invoke(pick, 1)


@app.workflow
async def parcel(ctx: Context) -> str:
    """A step of another queue."""
    return await ctx.invoke(carry, 1)


@app.workflow
async def parent(ctx: Context) -> int:
    """A child run."""
    return await ctx.invoke(order, 1)


@app.workflow
async def asks(ctx: Context) -> int:
    """A step after a signal."""
    await ctx.signal("go")
    return await ctx.invoke(pick, 1)


@app.workflow
async def rounds(ctx: Context, left: int) -> int:
    """Several segments."""
    if left:
        ctx.continue_as_new(left - 1)
    return await ctx.invoke(pick, 1)


async def waiting(house: House) -> None:
    """Return when the run waits for something."""
    await house.until(lambda: any(isinstance(one, ev.ExecutionAwaiting) for one in house.events("r")))


@pytest.fixture(autouse=True)
def _no_failures() -> None:
    failures["left"] = 0


async def test_a_run_is_one_trace_from_the_client_to_its_steps(house: House, recording: Recording) -> None:
    """The caller's span, the start, the turns and the attempts: each is a child of what brought it about."""
    client = await house.client()
    await house.worker(app)

    with recording.tracers.get_tracer("user").start_as_current_span("checkout"):
        handle = await client.start(order, 7, run_id="r")
    assert await handle.result() == 14

    start, first = recording.span("start order"), recording.span("process tidewheel.work.default")
    turns = recording.spans("activate order")
    steps = recording.spans("task pick")
    assert len({trace_id(span) for span in recording.spans()}) == 1
    assert parent_id(start) == span_id(recording.span("checkout"))
    assert parent_id(first) == span_id(start)
    assert {parent_id(turn) for turn in turns} == {span_id(start)}
    assert [parent_id(step) for step in steps] == [span_id(first), span_id(turns[0])]
    assert recording.attempts() == [("0", 1), ("1", 1)]
    assert attributes(steps[0])[names.RUN_ID] == "r"


async def test_the_journal_says_in_which_trace_a_run_was_started(house: House, recording: Recording) -> None:
    """Whoever goes on with it later finds the span of the start in its first event."""
    client = await house.client()

    await client.start(order, 7, run_id="r")

    (started,) = [one for one in house.events("r") if isinstance(one, ev.ExecutionStarted)]
    carried = made_of(started.traceparent)
    assert carried is not None
    assert int(carried.span_id, 16) == span_id(recording.span("start order"))


async def test_without_telemetry_the_journal_says_nothing_of_traces(house: House) -> None:
    """The event is as it always was."""
    client = await house.client()

    await client.start(order, 7, run_id="r")

    (started,) = [one for one in house.events("r") if isinstance(one, ev.ExecutionStarted)]
    assert b"trace" not in msgspec.json.encode(started)


async def test_a_retry_links_to_what_it_retries(house: House, recording: Recording) -> None:
    """Each attempt that was executed has its span; a later one is in a trace of its own."""
    failures["left"] = 1
    client = await house.client()
    await house.worker(app)

    assert await (await client.start(nap, 0)).result() == 1

    first, second = recording.spans("task pick")
    assert recording.attempts() == [("0", 1), ("0", 2)]
    assert attributes(first)[names.OUTCOME] == "error"
    assert attributes(first)[names.ERROR_TYPE] == "ValueError"
    assert attributes(second)[names.OUTCOME] == "ok"
    assert parent_id(second) is None
    assert trace_id(second) != trace_id(first)
    assert linked(second)


@pytest.mark.parametrize("seconds", [5, 90])
async def test_what_a_timer_woke_links_to_the_run(house: House, recording: Recording, seconds: int) -> None:
    """It is another trace, which knows where it comes from, whoever has waited for it: worker or keeper."""
    client = await house.client()
    await house.worker(app)
    await house.keeper()

    assert await (await client.start(nap, seconds)).result() == 1

    start, step = recording.span("start nap"), recording.span("task pick")
    assert trace_id(step) != trace_id(start)
    first = recording.spans("process tidewheel.work.default")[0]
    woken = [span for span in recording.spans() if trace_id(span) == trace_id(step) and span.parent is None]
    assert len(woken) == 1
    assert linked(woken[0]) & {span_id(first), span_id(start)}


async def test_a_step_of_another_queue_is_in_the_trace_of_its_run(house: House, recording: Recording) -> None:
    """Its context comes with the hint, and is current while its body runs."""
    client = await house.client()
    await house.worker(app)
    await house.worker(app, WorkerConfig(queues=("far",)))

    inside = await (await client.start(parcel)).result()

    step = recording.span("task carry")
    assert step.kind is trace.SpanKind.CONSUMER
    assert int(inside, 16) == trace_id(step) == trace_id(recording.span("start parcel"))
    assert attributes(step)[names.DESTINATION] == "tidewheel.work.far"


async def test_a_child_run_is_in_the_trace_of_its_parent(house: House, recording: Recording) -> None:
    """The turn that asked for it is where its trace goes on."""
    client = await house.client()
    await house.worker(app)

    assert await (await client.start(parent)).result() == 2

    assert len({trace_id(span) for span in recording.spans()}) == 1


async def test_what_a_signal_brings_about_is_in_the_trace_of_whoever_sent_it(
    house: House, recording: Recording
) -> None:
    """It links to the run that it goes on with."""
    client = await house.client()
    await house.worker(app)
    handle = await client.start(asks, run_id="r")
    await waiting(house)

    await handle.signal("go")
    assert await handle.result() == 1

    step, sent = recording.span("task pick"), recording.span("signal")
    assert trace_id(step) == trace_id(sent) != trace_id(recording.span("start asks"))
    turn = recording.spans("process tidewheel.work.default")[-1]
    assert span_id(recording.spans("process tidewheel.work.default")[0]) in linked(turn)


async def test_a_published_start_carries_the_trace(house: House, recording: Recording) -> None:
    """The command's span is the parent of the run's first turn."""
    client = await house.client()
    await house.worker(app)

    handle = await client.publish_start(order, 1)
    assert await handle.result() == 2

    sent, first = recording.span("send tidewheel.commands"), recording.span("process tidewheel.commands")
    assert parent_id(first) == span_id(sent)
    assert sent.kind is trace.SpanKind.PRODUCER


async def test_a_command_of_somebody_else_brings_its_trace(house: House, recording: Recording) -> None:
    """Whoever publishes JSON with the standard's header finds the run in their trace."""
    client = await house.client()
    await house.worker(app)
    theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = b'{"workflow": "order", "input": [1], "run_id": "r"}'
    message = Message(body=body, message_id="m", headers={"traceparent": theirs})

    await house.broker.publish([Publication(message=message, exchange=COMMANDS, routing_key="start")])
    await house.until(lambda: house.store.rows.run(RunRef("default", "r")) is not None)
    assert await client.handle("r").result() == 2

    assert {f"{trace_id(span):032x}" for span in recording.spans()} == {theirs[3:35]}


async def test_taking_over_tells_nothing_again(house: House, recording: Recording) -> None:
    """A worker that replays what another one did adds what is new: each attempt has one span."""
    client = await house.client()
    first = await house.worker(app)
    handle = await client.start(asks, run_id="r")
    await waiting(house)
    await first.stop()
    recording.recorder.runs = RunTraces()  # as in another process
    before = len(recording.spans())

    await house.worker(app)
    await handle.signal("go")
    assert await handle.result() == 1

    ids = [span_id(span) for span in recording.spans()]
    assert len(set(ids)) == len(ids)
    assert recording.attempts() == [("1", 1)]
    assert sorted(span.name for span in recording.spans()[before:]) == [
        "activate asks",
        "process tidewheel.work.default",
        "signal",
        "task pick",
    ]
    turn = recording.spans("process tidewheel.work.default")[-1]
    assert span_id(recording.span("start asks")) in linked(turn)


async def test_a_turn_whose_reply_was_lost_is_told_of_once(house: House, recording: Recording) -> None:
    """The append is repeated until the store says what became of it; the span stays one."""
    client = await house.client()
    await house.worker(app)
    handle = await client.start(order, 1, run_id="r")
    house.store.lost_replies = 1

    assert await handle.result() == 2

    ids = [span_id(span) for span in recording.spans()]
    assert len(set(ids)) == len(ids)
    assert sorted(set(recording.attempts())) == sorted(recording.attempts())


async def test_the_id_of_an_attempts_span_is_made_of_the_promise(house: House, recording: Recording) -> None:
    """Told of by two processes, it would be the same span."""
    client = await house.client()
    await house.worker(app)
    await (await client.start(order, 1, run_id="r")).result()
    told = [span_id(span) for span in recording.spans("task pick")]

    again = Recording()
    spans = [
        again.recorder.spans.begin(names.STEP_HERE, "pick", identity=f"default|r:{path}|1")
        for path in ("0", "1")
    ]

    assert [int(span.trace.span_id, 16) for span in spans] == told


async def test_a_next_segment_goes_on_from_the_one_before(house: House, recording: Recording) -> None:
    """The start of each segment says which turn began it."""
    client = await house.client()
    await house.worker(app)

    assert await (await client.start(rounds, 2, run_id="r")).result() == 1

    starts = [event for event in house.events("r") if isinstance(event, ev.ExecutionStarted)]
    assert len(starts) == 3
    assert all(made_of(start.traceparent) is not None for start in starts)
    assert len({start.traceparent for start in starts}) == 3
