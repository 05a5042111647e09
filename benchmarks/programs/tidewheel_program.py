"""Tidewheel: workers and a keeper as users start them, and a client that submits and waits."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.programs.answering import Figures, Watch, answer, begin, setting
from tidewheel import App, Client, Context, Handle, current_task
from tidewheel.journal.events import ExecutionCompleted
from tidewheel.sdk.program import execution_of
from tidewheel.store.opening import open_store
from tidewheel.store.records import RunRef
from tidewheel.workers.config import EventLoopConfig
from tidewheel.workers.entropy import SecureEntropy
from tidewheel.workers.event_loop import loop_factory

#: How long anything may take before it is called broken.
PATIENCE_S = 300.0
#: How many runs are started at a time where there are very many.
GROUP = 1_000
#: What publishes events, and what follows them, beside the workers.
PIPELINE = ("relay", "projector")
#: The processes are warm after so many runs.
WARMING_RUNS = 50

app = App("bench")


@app.task
async def step(number: int) -> int:
    """Do nothing."""
    return number


@app.task(inline=False)
async def queued_step(number: int) -> int:
    """Do nothing, over a queue."""
    return number


@app.task
async def noted_step(number: int) -> int:
    """Do nothing, but leave a line behind: an execution that died is not in the journal."""
    task = current_task()
    with open(Path(setting("FOLDER"), "executed"), "ab", buffering=0) as file:  # noqa: ASYNC230, PTH123 - one write
        file.write(f"{task.idempotency_key}\n".encode())
    return number


@app.workflow
async def sequence(ctx: Context, steps: int) -> int:
    """One step after the other."""
    total = 0
    for number in range(steps):
        total += await ctx.invoke(step, number)
    return total


@app.workflow
async def queued_sequence(ctx: Context, steps: int) -> int:
    """One step after the other, each over a queue."""
    total = 0
    for number in range(steps):
        total += await ctx.invoke(queued_step, number)
    return total


@app.workflow
async def noted_sequence(ctx: Context, steps: int) -> int:
    """One step after the other, each leaving a line behind."""
    total = 0
    for number in range(steps):
        total += await ctx.invoke(noted_step, number)
    return total


@app.workflow
async def fan(ctx: Context, steps: int) -> int:
    """All steps at once."""
    return sum(await asyncio.gather(*(ctx.invoke(step, number) for number in range(steps))))


@app.workflow
async def queued_fan(ctx: Context, steps: int) -> int:
    """All steps at once, each over a queue."""
    return sum(await asyncio.gather(*(ctx.invoke(queued_step, number) for number in range(steps))))


@app.workflow
async def sleeper(ctx: Context, seconds: float) -> None:
    """Sleep, and do a step."""
    await ctx.sleep(seconds)
    await ctx.invoke(step, 0)


class Fleet:
    """A keeper, workers, and a client that submits and waits; what it can be ordered to do is its methods."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory(EventLoopConfig.from_environment()))
        self._place = ["--store", setting("STORE"), "--broker", setting("BROKER")]
        self._keeper = self._start_process("keeper")
        self._workers = [self._start_worker() for _ in range(int(setting("PROCESSES")))]
        self._last_id = ""
        self._consumer: subprocess.Popen[str] | None = None
        self._client = self._runner.run(self._connect())

    # Orders

    def many(self, runs: int, steps: int, *, queued: bool = False) -> Figures:
        """Start runs all at once, and wait for all of them."""
        workflow = queued_sequence if queued else sequence
        return {"seconds": self._runner.run(self._go(workflow, runs, steps, sum(range(steps))))}

    def latency(self, repeats: int, steps: int) -> Figures:
        """Start a run and wait for it, one after the other."""

        async def each() -> list[float]:
            return [await self._go(sequence, 1, steps, sum(range(steps))) for _ in range(repeats)]

        return {"latencies": self._runner.run(each())}

    def long(self, steps: int) -> Figures:
        """One run."""
        return {"seconds": self._runner.run(self._go(sequence, 1, steps, sum(range(steps))))}

    def replay(self) -> Figures:
        """Read the journal of the run that was started last, and go through it as a new process would."""

        async def cold() -> Figures:
            store = await open_store(setting("STORE"))
            run = RunRef(self._client.namespace, self._last_id)
            began_s = time.process_time()
            entries = await store.journal(run) or []
            execution = execution_of(app.workflow_named(sequence), run.promise, entropy=SecureEntropy())
            execution.load(entries)
            execution.replay()
            cpu_s = time.process_time() - began_s
            assert isinstance(execution.ending(), ExecutionCompleted)
            execution.evict()
            await store.close()
            return {"events": len(entries), "cpu_s": cpu_s}

        return self._runner.run(cold())

    def fan_out(self, tasks: int, *, queued: bool = False) -> Figures:
        """One run that does everything at once."""
        workflow = queued_fan if queued else fan
        self._runner.run(self._go(workflow, 1, 2, 1))
        return {"seconds": self._runner.run(self._go(workflow, 1, tasks, sum(range(tasks))))}

    def recover(self, runs: int, steps: int, *, kill: bool) -> Figures:
        """Kill one of the workers when a third of the steps are done, and start another."""
        executed = Path(setting("FOLDER"), "executed")
        executed.write_bytes(b"")

        async def disturb() -> None:
            while _lines(executed) < runs * steps / 3:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
            self._workers.pop(0).send_signal(signal.SIGKILL)
            self._workers.append(self._start_worker())

        async def disturbed() -> float:
            disturbing = asyncio.ensure_future(disturb()) if kill else None
            seconds = await self._go(noted_sequence, runs, steps, sum(range(steps)))
            if disturbing is not None:
                await disturbing
            return seconds

        return {"seconds": self._runner.run(disturbed()), "twice": _lines(executed) - runs * steps}

    def sleep_long(self, runs: int, seconds: float) -> Figures:
        """Put runs to bed."""

        async def begin() -> float:
            watch = Watch()
            for _ in range(0, runs, GROUP):
                await self._start(sleeper, min(GROUP, runs), seconds)
            return watch.seconds

        return {"seconds": self._runner.run(begin())}

    def wake(self, runs: int, seconds: float) -> Figures:
        """Let runs sleep until one moment, and say how long after it all have ended."""

        async def all_at_once() -> float:
            until = time.time() + seconds
            handles: list[Handle[Any]] = []
            for _ in range(0, runs, GROUP):
                handles += await self._start(sleeper, min(GROUP, runs), until - time.time())
            assert time.time() < until - 0.5, "starting them took too long"
            await self._results(handles)
            return time.time() - until

        return {"seconds": self._runner.run(all_at_once())}

    def pipeline(self, runs: int, steps: int, per_s: int) -> Figures:
        """Start runs, all at once or so many a second, while a relay and a consumer are at work.

        Says how long the runs took, when the last of their events was heard, and how late each was.
        """
        consumer = self._start_pipeline()
        began_s = time.time()
        if per_s:
            seconds = self._runner.run(self._go_steadily(runs, steps, per_s))
        else:
            seconds = self._runner.run(self._go(sequence, runs, steps, sum(range(steps))))
        heard = _ask(consumer, runs * (2 + 2 * steps))
        lags = heard["lags_s"]
        return {
            "seconds": seconds,
            "heard_seconds": heard["last_s"] - began_s,
            "events": heard["events"],
            "lag_p50_ms": lags[len(lags) // 2] * 1000,
            "lag_p99_ms": lags[len(lags) * 99 // 100] * 1000,
        }

    def _start_pipeline(self) -> subprocess.Popen[str]:
        """Start what publishes and what consumes, once, and let them go through what is there."""
        if self._consumer is None:
            program = [sys.executable, "-m", "benchmarks.programs.consumer_program"]
            self._consumer = subprocess.Popen(  # noqa: S603 - our own program
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert self._consumer.stdout is not None
            self._consumer.stdout.readline()
            for role in PIPELINE:
                self._start_process(role, "--log-level", "warning")
            self._runner.run(self._go(sequence, WARMING_RUNS, 5, sum(range(5))))
            _ask(self._consumer, WARMING_RUNS * 12 * 2)  # also those that had warmed the workers
        return self._consumer

    async def _go_steadily(self, runs: int, steps: int, per_s: int) -> float:
        """Start so many runs a second, and wait for all of them."""
        watch = Watch()
        handles: list[Handle[Any]] = []
        for number in range(runs):
            await asyncio.sleep(max(0.0, number / per_s - watch.seconds))
            handles += await self._start(sequence, 1, steps)
        await self._results(handles)
        return watch.seconds

    def processes(self) -> Figures:
        """Which processes are whose."""
        return {"keeper": self._keeper.pid, "workers": [worker.pid for worker in self._workers]}

    # How

    def _start_process(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tidewheel.cli.main", role, *arguments, *self._place]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - our own command

    def _start_worker(self) -> subprocess.Popen[bytes]:
        return self._start_process("worker", f"{Path(__file__)}:app", "--log-level", "warning")

    async def _connect(self) -> Client:
        store = await open_store(setting("STORE"))
        async with asyncio.timeout(PATIENCE_S):
            while len(await store.workers()) < len(self._workers):  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.02)
        await store.close()
        client = self._client = await Client.connect(setting("STORE"), setting("BROKER"))
        await client.listen()
        await self._go(sequence, WARMING_RUNS, 5, sum(range(5)))
        return client

    async def _go(self, workflow: Any, runs: int, argument: Any, expected: Any) -> float:
        watch = Watch()
        results = await self._results(await self._start(workflow, runs, argument))
        assert results == [expected] * runs, results[:3]
        return watch.seconds

    async def _start(self, workflow: Any, runs: int, argument: Any) -> list[Handle[Any]]:
        door = self._client.publish_start if setting("DOOR") == "bus" else self._client.start
        handles = await asyncio.gather(*(door(workflow, argument) for _ in range(runs)))
        self._last_id = handles[-1].run_id
        return handles

    async def _results(self, handles: list[Handle[Any]]) -> list[Any]:
        return await asyncio.gather(*(handle.result(timeout=PATIENCE_S) for handle in handles))


def _ask(consumer: subprocess.Popen[str], events: int) -> dict[str, Any]:
    """Wait until the consumer has heard so many events, and return what it says of them."""
    assert consumer.stdin is not None
    assert consumer.stdout is not None
    consumer.stdin.write(f"{events}\n")
    consumer.stdin.flush()
    heard: dict[str, Any] = json.loads(consumer.stdout.readline())
    return heard


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def main() -> None:
    """Start everything and answer."""
    answers = begin()
    fleet = Fleet()
    orders = (
        fleet.many,
        fleet.latency,
        fleet.long,
        fleet.replay,
        fleet.fan_out,
        fleet.recover,
        fleet.sleep_long,
        fleet.wake,
        fleet.pipeline,
        fleet.processes,
    )
    answer(answers, {order.__name__: order for order in orders})


if __name__ == "__main__":
    main()
