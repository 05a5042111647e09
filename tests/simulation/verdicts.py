"""What must have come of the errands, judged when everything is over."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.errands import Errand
from tidewheel.broker.commands import SignalCommand, read_command
from tidewheel.broker.message import REASON
from tidewheel.broker.topology import COMMANDS, dead_letter_queue

if TYPE_CHECKING:
    from tests.simulation.world import World


def judge_errands(world: World) -> None:
    """Compare what clients were told with what is in the store, and both with what is right."""
    for errand in world.errands:
        _judge_run(world, errand)
    _judge_users_rows(world)
    _judge_dead_letters(world)


def _judge_run(world: World, errand: Errand) -> None:
    what = f"errand {errand.number}, {errand.kind}{errand.args}"
    if len(errand.run_ids) != 1:
        world.fail(f"{what}: one key gave the runs {sorted(errand.run_ids)}")
        return
    (run_id,) = errand.run_ids
    watch = world.watch.by_id.get(run_id)
    if watch is None:
        world.fail(f"{what}: run {run_id} was acknowledged and is not in the store")
        return
    wrong = [outcome for outcome in errand.outcomes if outcome not in errand.wanted]
    if wrong or len({repr(outcome) for outcome in errand.outcomes}) != 1:
        world.fail(f"{what}: run {run_id} came to {errand.outcomes} instead of {errand.wanted}")
    delivered = Counter(map(repr, watch.delivered.values()))
    for payload in errand.acknowledged:
        if delivered[repr(payload)] != 1:
            times = delivered[repr(payload)]
            world.fail(f"{what}: signal {payload} was acknowledged and is {times} times in {run_id}")
    for payload in errand.sent:
        if delivered[repr(payload)] > 1:
            world.fail(f"{what}: signal {payload} is {delivered[repr(payload)]} times in {run_id}")
    for payload in errand.refused - errand.sent:  # who took the errand up may have sent it as a message
        if delivered[repr(payload)]:
            world.fail(f"{what}: signal {payload} was refused to its sender and is in {run_id}")


def _judge_dead_letters(world: World) -> None:
    """A command is followed. Only a signal may come too late, and is kept with the reason."""
    queue = world.queues.by_name.get(dead_letter_queue(COMMANDS))
    for letter in [] if queue is None else queue.waiting:
        reason = letter.message.headers[REASON]
        command = read_command(letter.message.body)
        if not (isinstance(command, SignalCommand) and reason.endswith("has ended, and takes no signals")):
            world.fail(f"{command} is a dead letter: {reason}")


def _judge_users_rows(world: World) -> None:
    """A row of a transactional step is there once if the step was completed, and else not at all."""
    counted = Counter(row[0] for row in world.database.users_rows)
    completed = {
        f"{watch.run_id.partition(':')[0]}:{path}"
        for watch in world.watch.by_id.values()
        for path, result in watch.completed.items()
        if not result.error
    }
    for key, times in counted.items():
        if times != 1 or key not in completed:
            world.fail(f"the user's row of step {key} is there {times} times; completed: {key in completed}")
