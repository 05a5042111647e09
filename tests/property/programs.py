"""Generated workflow programs: nested asyncio constructs over every durable verb.

A program is plain JSON (a node: a list whose head names the construct), so it travels
as the input of one registered workflow, ``interpret``, and any process can replay it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tidewheel.sdk.app import App
from tidewheel.sdk.context import Context
from tidewheel.sdk.errors import StepFailed

Node = list[Any]
app = App("generated")


@app.task
async def alpha(value: int) -> str:
    """A task; the harness makes up its result."""
    return f"alpha-{value}"


@app.task
async def beta(value: int) -> str:
    """Another task."""
    return f"beta-{value}"


TASKS: dict[str, Callable[[int], Awaitable[str]]] = {"alpha": alpha, "beta": beta}
SIGNALS = ("red", "blue")


@app.workflow
async def interpret(ctx: Context, nodes: list[Node]) -> Any:
    """Run a generated program; each further node is a segment of its own."""
    result = await run(ctx, nodes[0])
    if len(nodes) > 1:
        ctx.continue_as_new(nodes[1:])
    return result


@app.workflow
async def child(ctx: Context, value: int) -> str:
    """A child run; the harness makes up its result."""
    await ctx.sleep(1)
    return f"child-{value}"


async def run(ctx: Context, node: Node) -> Any:
    """Run one node."""
    return await CONSTRUCTS[node[0]](ctx, *node[1:])


CONSTRUCTS: dict[str, Callable[..., Awaitable[Any]]] = {}


def construct(fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Register a construct under its function's name."""
    CONSTRUCTS[fn.__name__.rstrip("_")] = fn
    return fn


# Leaves


@construct
async def task(ctx: Context, name: str, value: int) -> Any:
    """One step."""
    return await ctx.invoke(TASKS[name], value)


@construct
async def keyed(ctx: Context, name: str, key: str) -> Any:
    """One step with a key, asked for twice."""
    first = ctx.start(TASKS[name], 1, key=f"{name}-{key}")
    return [await first, await ctx.invoke(TASKS[name], 1, key=f"{name}-{key}")]


@construct
async def operation(ctx: Context, key: str) -> Any:
    """A journaled closure."""
    return await ctx.run(key, lambda: 7)


@construct
async def subrun(ctx: Context, value: int) -> Any:
    """A child run."""
    return await ctx.invoke(child, value)


@construct
async def sleep(ctx: Context, seconds: float) -> Any:
    """A durable sleep."""
    await ctx.sleep(seconds)
    return "slept"


@construct
async def plain_sleep(_ctx: Context, seconds: float) -> Any:
    """asyncio's own sleep."""
    await asyncio.sleep(seconds)
    return "slept plainly"


@construct
async def signal(ctx: Context, name: str) -> Any:
    """A signal."""
    return await ctx.signal(name)


@construct
async def signal_within(ctx: Context, name: str, seconds: float) -> Any:
    """A signal, or not in time."""
    try:
        return await ctx.signal(name, timeout=seconds)
    except TimeoutError:
        return await ctx.invoke(alpha, 99)


@construct
async def promise(ctx: Context, name: str) -> Any:
    """A promise resolved from outside."""
    return await ctx.promise(name)


@construct
async def values(ctx: Context, key: str) -> Any:
    """State, time and chance."""
    ctx.state[key] = [ctx.random(), str(ctx.uuid()), ctx.now().isoformat()]
    moment = asyncio.get_running_loop().time()
    if "gone" in ctx.state:
        del ctx.state["gone"]
    ctx.state["gone"] = moment
    return [ctx.state[key], moment]


# Constructs


@construct
async def seq(ctx: Context, nodes: list[Node]) -> Any:
    """One after the other."""
    return [await run(ctx, node) for node in nodes]


@construct
async def gather(ctx: Context, nodes: list[Node], keep_errors: bool) -> Any:
    """asyncio.gather."""
    results = await asyncio.gather(*(run(ctx, node) for node in nodes), return_exceptions=keep_errors)
    return [shown(result) for result in results]


@construct
async def group(ctx: Context, nodes: list[Node]) -> Any:
    """asyncio.TaskGroup."""
    failures, branches = 0, list[asyncio.Task[Any]]()
    try:
        async with asyncio.TaskGroup() as tasks:
            branches = [tasks.create_task(run(ctx, node)) for node in nodes]
    except* StepFailed as failed:
        failures = len(failed.exceptions)
    if failures:
        return ["group failed", await ctx.invoke(beta, failures)]
    return [branch.result() for branch in branches]


@construct
async def timeout(ctx: Context, seconds: float, node: Node) -> Any:
    """asyncio.timeout."""
    try:
        async with asyncio.timeout(seconds):
            return await run(ctx, node)
    except TimeoutError:
        return await ctx.invoke(beta, 1)


@construct
async def wait_for(ctx: Context, seconds: float, node: Node) -> Any:
    """asyncio.wait_for."""
    try:
        return await asyncio.wait_for(run(ctx, node), seconds)
    except TimeoutError:
        return "late"


@construct
async def wait(ctx: Context, nodes: list[Node], until: str) -> Any:
    """asyncio.wait, then each finished one gets a follow-up."""
    tasks = [asyncio.create_task(run(ctx, node)) for node in nodes]
    done, pending = await asyncio.wait(tasks, return_when=until)
    results: list[Any] = []
    for finished in done:
        problem = finished.exception()
        results.append([shown(problem or finished.result()), await ctx.invoke(alpha, len(results))])
    for late in pending:
        late.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return results


@construct
async def completed(ctx: Context, nodes: list[Node]) -> Any:
    """asyncio.as_completed, with a step for each."""
    results: list[Any] = []
    for soonest in asyncio.as_completed([run(ctx, node) for node in nodes]):
        try:
            results.append([await soonest, await ctx.invoke(alpha, len(results))])
        except StepFailed as problem:
            results.append([shown(problem)])
    return results


@construct
async def join(ctx: Context, values_: list[int], take: int) -> Any:
    """A join set, left after some of its results."""
    results = []
    async with ctx.join_set() as joined:
        early = ctx.start(alpha, 50)
        for value in values_:
            joined.submit(beta, value)
        joined.submit(early)
        joined.submit(child, 3)
        for _ in range(min(take, len(joined))):
            try:
                results.append(await joined.next())
            except StepFailed as problem:
                results.append(shown(problem))
            results.append(await ctx.invoke(alpha, len(results)))
    return results


@construct
async def cancel(ctx: Context, node: Node, before: Node) -> Any:
    """A branch that is cancelled after another node."""
    branch = asyncio.create_task(run(ctx, node))
    first = await run(ctx, before)
    branch.cancel()
    ended = await asyncio.gather(branch, return_exceptions=True)
    return [first, shown(ended[0])]


@construct
async def shielded(ctx: Context, node: Node, seconds: float) -> Any:
    """A shielded branch behind a timeout, awaited in the end."""
    branch = asyncio.create_task(run(ctx, node))
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(branch)
    except TimeoutError:
        return ["late", await branch]


@construct
async def attempt(ctx: Context, node: Node, otherwise: Node) -> Any:
    """try, except and a durable clean-up."""
    try:
        return await run(ctx, node)
    except StepFailed:
        return await run(ctx, otherwise)
    finally:
        await ctx.invoke(beta, 77)


@construct
async def spawned(ctx: Context, node: Node, meanwhile: Node) -> Any:
    """A branch nobody awaits."""
    asyncio.create_task(quietly(ctx, node))  # noqa: RUF006 - the loop keeps it, which is the point
    return await run(ctx, meanwhile)


async def quietly(ctx: Context, node: Node) -> None:
    """Run a node and let its failure go."""
    try:
        await run(ctx, node)
    except StepFailed:
        await ctx.invoke(alpha, 13)


@construct
async def pool(ctx: Context, nodes: list[Node], workers: int) -> Any:
    """Workers on a queue, under a lock and a semaphore, told to stop by an event."""
    queue: asyncio.Queue[Node] = asyncio.Queue()
    lock, semaphore, drained = asyncio.Lock(), asyncio.Semaphore(1), asyncio.Event()
    results: list[Any] = []

    async def worker() -> None:
        while not queue.empty():
            node = queue.get_nowait()
            async with semaphore:
                result = await attempt_quietly(ctx, node)
            async with lock:
                results.append([result, await ctx.invoke(alpha, len(results))])
        drained.set()

    for node in nodes:
        queue.put_nowait(node)
    hands = [asyncio.create_task(worker()) for _ in range(workers)]
    await drained.wait()
    await asyncio.gather(*hands)
    return results


async def attempt_quietly(ctx: Context, node: Node) -> Any:
    """Run a node and show its failure."""
    try:
        return await run(ctx, node)
    except StepFailed as problem:
        return shown(problem)


@construct
async def stream(ctx: Context, nodes: list[Node], take: int) -> Any:
    """An async generator, abandoned half way."""

    async def results() -> AsyncIterator[Any]:
        try:
            for node in nodes:
                yield await run(ctx, node)
        finally:
            await ctx.invoke(beta, 5)

    taken = []
    async for result in results():
        taken.append(result)
        if len(taken) >= take:
            break
    return taken


def shown(value: Any) -> Any:
    """Turn an exception into something a result can hold."""
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else value


# Generation

LEAVES: tuple[Callable[[random.Random], Node], ...] = (
    lambda r: ["task", r.choice(tuple(TASKS)), r.randrange(9)],
    lambda r: ["task", r.choice(tuple(TASKS)), r.randrange(9)],
    lambda r: ["keyed", r.choice(tuple(TASKS)), r.choice("ab")],
    lambda r: ["operation", r.choice("xy")],
    lambda r: ["subrun", r.randrange(9)],
    lambda r: ["sleep", r.choice((0, 0.5, 2, 5))],
    lambda r: ["plain_sleep", r.choice((0, 0.5, 3))],
    lambda r: ["signal", r.choice(SIGNALS)],
    lambda r: ["signal_within", r.choice(SIGNALS), r.choice((1, 4))],
    lambda r: ["promise", r.choice("pq")],
    lambda r: ["values", r.choice("mn")],
)


def generate(r: random.Random, depth: int = 3) -> list[Node]:
    """Make a random program of one or two segments, each at most *depth* constructs deep."""
    return [generate_node(r, depth) for _ in range(r.choice((1, 1, 2)))]


def generate_node(r: random.Random, depth: int) -> Node:
    """Make a random node at most *depth* constructs deep."""
    if depth == 0 or r.random() < 0.15:
        return r.choice(LEAVES)(r)

    def nodes(most: int = 3) -> list[Node]:
        return [generate_node(r, depth - 1) for _ in range(r.randint(1, most))]

    def node() -> Node:
        return generate_node(r, depth - 1)

    makers: tuple[Callable[[], Node], ...] = (
        lambda: ["seq", nodes()],
        lambda: ["gather", nodes(), r.random() < 0.5],
        lambda: ["group", nodes()],
        lambda: ["timeout", r.choice((0, 1, 3)), node()],
        lambda: ["wait_for", r.choice((1, 3)), node()],
        lambda: [
            "wait",
            nodes(),
            r.choice((asyncio.FIRST_COMPLETED, asyncio.ALL_COMPLETED, asyncio.FIRST_EXCEPTION)),
        ],
        lambda: ["completed", nodes()],
        lambda: ["join", [r.randrange(9) for _ in range(r.randint(0, 3))], r.randint(0, 5)],
        lambda: ["cancel", node(), node()],
        lambda: ["shielded", node(), r.choice((1, 3))],
        lambda: ["attempt", node(), node()],
        lambda: ["spawned", node(), node()],
        lambda: ["pool", nodes(4), r.randint(1, 2)],
        lambda: ["stream", nodes(), r.randint(1, 2)],
    )
    return r.choice(makers)()
