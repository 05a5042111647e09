"""The app of the simulated world: workflows that use every verb.

What each returns is a function of its input and of what clients tell it, whatever happens to the
processes that execute it; ``errands`` knows what must come out.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tests.simulation.effects import begin, take_a_while
from tidewheel import App, Context, Retry
from tidewheel.sdk.errors import StepFailed

app = App("simulated")

#: Never spent, however many workers are lost.
STUBBORN = Retry(max_attempts=1000, initial=0.05, max_delay=2.0)
#: Sooner or later every body of such a step has failed once with each of its numbers.
FAR_RETRY = Retry(max_attempts=1000, initial=20.0, backoff=3.0, max_delay=90.0)


class Refusal(Exception):
    """A failure that reaches the workflow as itself."""


# Tasks


@app.task(retry=STUBBORN)
async def add(left: int, right: int) -> int:
    """A sum; it fails now and then, by its attempt."""
    step = begin()
    await take_a_while(1.0)
    if (left + right + step.attempt) % 5 == 0:
        raise ConnectionError("the adder is away")
    return left + right


@app.task(retry=STUBBORN)
def double(value: int) -> int:
    """A plain function."""
    begin()
    return 2 * value


@app.task(retry=STUBBORN, inline=False)
async def far(value: int) -> int:
    """A step that always goes over the queue."""
    step = begin()
    await take_a_while(3.0)
    if (value + step.attempt) % 7 == 0:
        raise ConnectionError("the far side is away")
    return value + 100


@app.task(retry=FAR_RETRY, queue="far")
async def elsewhere(value: int) -> int:
    """A step of another queue, whose retries are minutes away."""
    step = begin()
    if step.attempt == 1 and value % 3 == 0:
        raise ConnectionError("not at the first attempt")
    return value + 1000


@app.task(retry=Retry(max_attempts=3, initial=0.1))
async def hopeless(value: int) -> int:
    """A step whose attempts are always spent."""
    begin()
    raise ValueError(f"never {value}")


@app.task(retry=Retry(max_attempts=1000, non_retryable=["Refusal"]), raises=[Refusal])
async def picky(value: int) -> int:
    """A step that refuses odd numbers."""
    begin()
    if value % 2:
        raise Refusal(f"{value} is odd")
    return value


@app.task(retry=STUBBORN, heartbeat=2.0, inline=False)
async def laborious(value: int) -> int:
    """A long step that says it is alive, and goes on where the attempt before it was lost."""
    step = begin()
    done = step.last_heartbeat or 0
    for place in range(done, 4):
        step.heartbeat(place)
        await asyncio.sleep(0.7)
    return value * 3


@app.task(retry=STUBBORN, heartbeat=3.0)
async def laborious_here(value: int) -> int:
    """The same next to the run's code."""
    step = begin()
    for place in range(3):
        step.heartbeat(place)
        await asyncio.sleep(0.5)
    return value * 5


@app.task(retry=STUBBORN, timeout=4.0)
async def slow(value: int) -> int:
    """A step that the code may give up on."""
    begin()
    await take_a_while(6.0)
    return value


@app.task(retry=STUBBORN, transactional=True)
async def book(account: str, amount: int) -> int:
    """A row of the user's, written with the step's result."""
    step = begin()
    await take_a_while(0.5)
    step.connection.append((step.idempotency_key, account, amount))
    return amount


@app.task(retry=STUBBORN, transactional=True, inline=False)
async def book_far(account: str, amount: int) -> int:
    """The same over the queue."""
    step = begin()
    step.connection.append((step.idempotency_key, account, amount))
    await take_a_while(0.5)
    return amount


@app.task(retry=STUBBORN)
async def tidy_up(value: int) -> int:
    """What a cancelled run still has to do."""
    begin()
    await take_a_while(0.5)
    return -value


# Workflows


@app.workflow
async def sequence(ctx: Context, n: int) -> int:
    """Steps one after the other, of every kind."""
    total = await ctx.invoke(add, n, 1)
    total += await ctx.invoke(double, total)
    total += await ctx.run("op", lambda: _operation(n), retry=STUBBORN)
    total += await ctx.invoke(far, n)
    total += await ctx.invoke(elsewhere, n)
    ctx.state["total"] = total
    return total


def _operation(n: int) -> int:
    begin()
    return 7 * n


@app.workflow
async def leaf(ctx: Context, n: int) -> int:
    """A child that sleeps and works."""
    await ctx.sleep(0.02 * (n % 5))
    return await ctx.invoke(add, n, n)


@app.workflow
async def family(ctx: Context, n: int, depth: int) -> int:
    """Children of children, next to each other."""
    if depth == 0:
        return await ctx.invoke(leaf, n)
    first = ctx.start(family, n, depth - 1)
    second = ctx.start(leaf, n + 1)
    own = await ctx.invoke(double, n)
    return own + await first + await second


@app.workflow
async def crowd(ctx: Context, n: int) -> list[int]:
    """Steps side by side: a join set, gather, a task group."""
    found: list[int] = []
    async with ctx.join_set() as some:
        for place in range(n % 4 + 1):
            some.submit(add, n, place)
        some.submit(leaf, n)
        some.submit(far, n)
        found += [value async for value in some]
    found += await asyncio.gather(*(ctx.invoke(double, n + place) for place in range(3)))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_two_steps(ctx, n + place)) for place in range(3)]
    return sorted(found + [task.result() for task in tasks])


async def _two_steps(ctx: Context, n: int) -> int:
    first = await ctx.invoke(add, n, 10)
    await ctx.sleep(0.1)
    return first + await ctx.invoke(double, n)


@app.workflow
async def first_of_many(ctx: Context, n: int) -> int:
    """A join set that is left early: what remains is cancelled."""
    async with ctx.join_set() as some:
        for _place in range(3):
            some.submit(slow, n)
        some.submit(leaf, n)
        await some.next()
    return await ctx.invoke(double, n)


@app.workflow
async def impatient(ctx: Context, n: int) -> str:
    """Waits with limits: a step, a child, a signal that may not come, and goes on either way."""
    seen = []
    try:
        async with asyncio.timeout(1.5):
            await ctx.invoke(slow, n)
            seen.append("step")
    except TimeoutError:
        seen.append("late")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await ctx.invoke(family, n, 1)
    with contextlib.suppress(TimeoutError):
        await ctx.signal("maybe", timeout=2.0)
    again = await ctx.invoke(add, n, 2)
    return f"{'step' if seen else 'none'}-{again}"


@app.workflow
async def comes_back(ctx: Context, n: int) -> int:
    """Gives up on a step, then asks for it again by its key."""
    try:
        async with asyncio.timeout(0.3):
            await ctx.invoke(slow, n, key="again")
    except TimeoutError:
        await ctx.sleep(0.2)
    first = await ctx.invoke(slow, n, key="again")
    second = await ctx.invoke(slow, n, key="again")
    return first + second


@app.workflow
async def mailbox(ctx: Context, wanted: int, segment: int, so_far: list[int]) -> list[int]:
    """Collects signals over several segments; none is lost on the way from one to the next."""
    for _place in range(segment):
        if len(so_far) == wanted:
            return so_far
        so_far.append(await ctx.signal("item", into=int))
    ctx.state["seen"] = len(so_far)
    await ctx.invoke(double, len(so_far))
    return ctx.continue_as_new(wanted, segment, so_far)


@app.workflow
async def approved(ctx: Context, n: int) -> str:
    """Waits for two promises and a signal at once."""
    yes, no = ctx.promise("yes", into=int), ctx.promise("no", timeout=1e8)
    word = ctx.signal("word")
    given = await yes
    try:
        await no
        refused = False
    except StepFailed:
        refused = True
    return f"{n}-{given}-{refused}-{await word}"


@app.workflow
async def cancellable(ctx: Context, n: int) -> int:
    """Works until it is cancelled, and then tidies up."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_for_ever(ctx, n))
            group.create_task(_for_ever(ctx, n + 1))
    except asyncio.CancelledError:
        ctx.state["tidied"] = await ctx.invoke(tidy_up, n)
        raise
    raise AssertionError("for ever is over")


async def _for_ever(ctx: Context, n: int) -> None:
    while True:
        await ctx.invoke(slow, n)
        await ctx.invoke(leaf, n)
        await ctx.sleep(3)


@app.workflow
async def careful(ctx: Context, n: int) -> list[Any]:
    """Failures that reach the code: attempts spent, a class of its own, a failed child."""
    seen: list[Any] = []
    try:
        await ctx.invoke(hopeless, n)
    except StepFailed:
        seen.append("spent")
    try:
        seen.append(await ctx.invoke(picky, n))
    except Refusal as problem:
        seen.append(str(problem))
    try:
        await ctx.invoke(doomed, n)
    except StepFailed as problem:
        seen.append(problem.error_type)
    return seen


@app.workflow
async def doomed(ctx: Context, n: int) -> int:
    """A run that fails."""
    await ctx.invoke(double, n)
    raise LookupError(f"nothing for {n}")


@app.workflow
async def banker(ctx: Context, n: int) -> int:
    """Rows of the user's that must be there once each."""
    booked = await asyncio.gather(
        ctx.invoke(book, f"a{n}", 1), ctx.invoke(book_far, f"b{n}", 2), ctx.invoke(book, f"c{n}", 3)
    )
    return sum(booked) + await ctx.invoke(book, f"d{n}", 4)


@app.workflow
async def labourer(ctx: Context, n: int) -> int:
    """Long steps with heartbeats."""
    return sum(await asyncio.gather(ctx.invoke(laborious, n), ctx.invoke(laborious_here, n)))


@app.workflow
async def gambler(ctx: Context, n: int) -> bool:
    """Chance and time, which stay what they were."""
    chosen, name, then = ctx.random(), str(ctx.uuid()), ctx.now()
    ctx.state["chosen"] = chosen
    echoed = await ctx.invoke(double, n)
    await ctx.sleep(0.5 + chosen)
    kept = await ctx.run("keep", lambda: [chosen, name, then.isoformat()], retry=STUBBORN)
    same = kept == [chosen, name, then.isoformat()] and ctx.state["chosen"] == chosen
    return same and echoed == 2 * n


@app.workflow
async def sleeper(ctx: Context, n: int, seconds: float) -> int:
    """Timers near and far."""
    await asyncio.gather(ctx.sleep(seconds), ctx.sleep(seconds / 3), ctx.sleep(0.0))
    await asyncio.sleep(seconds / 10)
    return await ctx.invoke(add, n, 3)
