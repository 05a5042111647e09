"""The durable verbs, in JSON: each matches the journal or records something new.

A command is counted when its verb is called, not when it is awaited. The typed verbs
that users import are in ``sdk.context``; they encode and decode around these.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import CommandId, CommandType, check_name
from tidewheel.replay.ending import ContinueAsNew
from tidewheel.replay.execution import Execution
from tidewheel.replay.history import INVOKE_TYPES
from tidewheel.replay.join_set import JoinSet
from tidewheel.replay.loop import DeterministicLoop
from tidewheel.replay.promise import Decoder, Promise


class Commands:
    """What workflow code can durably ask for."""

    def __init__(self, execution: Execution) -> None:
        self._run = execution
        self._keyed: dict[CommandId, Promise] = {}
        self._named: dict[str, Promise] = {}
        self._owners: dict[str, str] = {}

    @property
    def loop(self) -> DeterministicLoop:
        """The run's loop, for join sets."""
        return self._run.loop

    def check_alive(self) -> None:
        """Refuse a verb where no code of this run is moving."""
        self._run.loop.refuse_if_dead()
        if not self._run.loop.is_current():
            message = "ctx belongs to its workflow's own code: tasks and threads cannot use it"
            raise InvalidRequest(message)

    # Invokes

    def invoke(
        self,
        schedule: ev.InvokeScheduled,
        given: list[Any],
        decoder: Decoder,
        *,
        key: str | None = None,
        execute: Callable[[], Any] | None = None,
    ) -> Promise:
        """Ask for a task, child run or operation. *schedule* lacks its identity and its input, *given*."""
        run = self._run
        if not run.loop.is_at_work():
            self.check_alive()
            if run.loop.is_stubborn():
                return self._never(decoder)
        matcher, kind, name = run.matcher, schedule.kind, schedule.function_name
        command = matcher.next(INVOKE_TYPES[kind], key)
        if key is not None and command in self._keyed:
            known = self._keyed[command]
            assert known.event is not None
            matcher.same(command, "function_name", known.event.function_name, name)
            self._keyed[command] = self._twin(known, decoder)
            return self._keyed[command]
        event = matcher.invoke(command, kind, name, given)
        if event is None:
            which: Any = command.which
            event = ev.InvokeScheduled(
                promise_id=matcher.allocate(),
                kind=kind,
                function_name=name,
                input=given,
                retry_policy=schedule.retry_policy,
                n=UNSET if key is not None else which,
                key=UNSET if key is None else key,
                dispatch=schedule.dispatch,
                queue=schedule.queue,
                limits=schedule.limits,
            )
            run.moves.append(event)
        promise = Promise(command, event.promise_id, decoder, event, run.loop, run)
        if execute is not None:
            promise.execute = execute
        if key is not None:
            self._keyed[command] = promise
        run.expect(promise, promise.path)
        return promise

    # Waiting

    def sleep(self, seconds: float, decoder: Decoder) -> Promise:
        """A timer; no time at all needs none."""
        self.check_alive()
        if self._run.loop.is_stubborn():
            return self._never(decoder)
        if seconds <= 0:
            promise = self._promise(_NO_COMMAND, "", decoder)
            promise.settle(ev.NOTHING)
            return promise
        command = self._run.matcher.next(CommandType.TIMER)
        path = self._run.schedule_timer(command, seconds)
        promise = self._promise(command, path, decoder)
        self._run.expect(promise, path)
        return promise

    def signal(self, name: str, decoder: Decoder) -> Promise:
        """Wait for the next signal of *name*; at once where one is buffered."""
        self.check_alive()
        if self._run.loop.is_stubborn():
            return self._never(decoder)
        check_name(name, "signal")
        run = self._run
        command = run.matcher.next(CommandType.SIGNAL)
        record = run.matcher.signal(command, name)
        promise = self._promise(command, record.path if record else run.matcher.allocate(), decoder)
        promise.signal_name = name
        if record is not None and record.at_once and record.received is not None:
            promise.settle(ev.Result(ok=record.received.payload))
        elif (record is None or record.received is None) and run.live and run.signals.is_buffered(name):
            run.moves.append(run.signals.receive(promise, name))
            promise.settle(run.history.facts[promise.path])
        else:
            if record is None or record.received is None:
                run.asked()
            run.signals.add(promise, name)
            run.expect(promise, promise.path)
        return promise

    def promise(self, name: str, decoder: Decoder) -> Promise:
        """A promise that somebody outside resolves by *name*; asking again waits for the same one."""
        self.check_alive()
        if self._run.loop.is_stubborn():
            return self._never(decoder)
        check_name(name, "promise")
        if name in self._named:
            self._named[name] = self._twin(self._named[name], decoder)
            return self._named[name]
        matcher = self._run.matcher
        command = matcher.next(CommandType.PROMISE)
        record = matcher.find(command)
        if record is not None:
            matcher.same(command, "name", record.event.name, name)
            path = record.path
        else:
            path = matcher.allocate()
            self._run.moves.append(ev.PromiseCreated(promise_id=path, name=name))
        promise = self._promise(command, path, decoder)
        self._named[name] = promise
        self._run.expect(promise, path)
        return promise

    def give_up_after(self, promise: Promise, seconds: float, problem: BaseException) -> None:
        """Fail *promise* with *problem* if it is not settled in time."""
        if not promise.done():
            timer = self._run.loop.call_later(seconds, promise.fail, problem)
            promise.on_settled = timer.cancel

    # Values

    def random(self) -> float:
        """A random float in [0, 1), the same on every replay."""
        value: float = self._random("random", self._run.entropy.random)
        return value

    def uuid(self) -> str:
        """A random UUID, the same on every replay."""
        value: str = self._random("uuid", self._run.entropy.uuid)
        return value

    def now(self) -> dt.datetime:
        """The time the code was last shown."""
        self.check_alive()
        command = self._run.matcher.next(CommandType.TIME)
        record = self._run.matcher.find(command)
        if record is not None and record.event.time is not None:
            recorded: dt.datetime = record.event.time
            return recorded
        time = dt.datetime.fromtimestamp(self._run.loop.now, dt.UTC)
        if record is None:
            self._run.moves.append(ev.TimeRecorded(promise_id=self._run.matcher.allocate(), time=time))
        return time

    def _random(self, kind: Any, generate: Callable[[], Any]) -> Any:
        self.check_alive()
        command = self._run.matcher.next(CommandType.RANDOM)
        record = self._run.matcher.find(command)
        if record is None:
            value = generate()
            path = self._run.matcher.allocate()
            self._run.moves.append(ev.RandomGenerated(promise_id=path, value=value, kind=kind))
            return value
        event: ev.RandomGenerated = record.event
        recorded = event.kind
        if recorded is UNSET:
            recorded = "uuid" if isinstance(event.value, str) else "random"
        self._run.matcher.same(command, "kind", recorded, kind)
        return event.value

    # State

    def state_set(self, key: str, value: Any) -> None:
        """Remember *value* under *key*."""
        recorded = self._state(ev.StateSet(key=key, value=value))
        self._run.state[key] = recorded.value if isinstance(recorded, ev.StateSet) else value

    def state_clear(self, key: str) -> None:
        """Forget *key*."""
        self._state(ev.StateCleared(key=key))
        del self._run.state[key]

    def state(self) -> dict[str, Any]:
        """What the run remembers. Do not change it in place."""
        return self._run.state

    def _state(self, event: ev.StateSet | ev.StateCleared) -> ev.StateSet | ev.StateCleared:
        """Match or record a change; return the journal's version of it."""
        self.check_alive()
        matcher = self._run.matcher
        command = matcher.next(CommandType.STATE)
        record = matcher.find(command)
        if record is None:
            self._run.moves.append(event)
            return event
        matcher.same(command, "type", type(record.event).__name__, type(event).__name__)
        matcher.same(command, "key", record.event.key, event.key)
        if isinstance(event, ev.StateSet):
            matcher.value(command, "value", record.event.value, event.value)
        recorded: ev.StateSet | ev.StateCleared = record.event
        return recorded

    # Join sets

    def join_set(self) -> JoinSet:
        """Open a join set."""
        self.check_alive()
        command = self._run.matcher.next(CommandType.JOIN_SET)
        record = self._run.matcher.find(command)
        if record is not None:
            return JoinSet(command, record.path, self)
        path = self._run.matcher.allocate()
        self._run.moves.append(ev.JoinSetCreated(join_set_id=path))
        return JoinSet(command, path, self)

    def join_set_of(self, promise: Promise) -> str | None:
        """The path of the set that *promise*'s command is a member of."""
        return self._owners.get(promise.path)

    def join_set_submitted(self, join_set: JoinSet, promise: Promise) -> None:
        """Match or record a new member."""
        self._owners[promise.path] = join_set.path
        recorded = self._run.history.submitted.get(join_set.path)
        if recorded:
            command = f"{join_set.command}.submit({join_set.submitted - 1})"
            self._run.matcher.same(command, "promise_id", recorded.popleft(), promise.path)
        else:
            self._run.moves.append(ev.JoinSetSubmitted(join_set_id=join_set.path, promise_id=promise.path))

    def join_set_awaited(self, join_set: JoinSet, promise: Promise) -> None:
        """Match or record a result that is handed out."""
        self.check_alive()
        recorded = self._run.history.awaited.get(join_set.path)
        if recorded:
            command = f"{join_set.command}.next({join_set.consumed - 1})"
            self._run.matcher.same(command, "promise_id", recorded.popleft(), promise.path)
        else:
            result = self._run.history.facts.get(promise.path)
            self._run.moves.append(
                ev.JoinSetAwaited(join_set_id=join_set.path, promise_id=promise.path, result=result)
            )

    # The end

    def continue_as_new(self, given: list[Any]) -> ContinueAsNew:
        """Return what ends this segment when raised."""
        self.check_alive()
        return ContinueAsNew(given)

    def _twin(self, known: Promise, decoder: Decoder) -> Promise:
        # A promise of its own: one branch giving up must not cancel the other's wait.
        twin = self._promise(known.command, known.path, decoder)
        twin.event = known.event
        if known.execute is not None:
            twin.execute = known.execute
        self._run.expect(twin, known.path)
        return twin

    def _never(self, decoder: Decoder) -> Promise:
        # The code catches every refusal and asks again: let it wait, so that it can be put away.
        return self._promise(_NO_COMMAND, "", decoder)

    def _promise(self, command: CommandId, path: str, decoder: Decoder) -> Promise:
        return Promise(command, path, decoder, None, self._run.loop, self._run)


#: What a promise has that stands for no command: a sleep of no time, say.
_NO_COMMAND = CommandId(CommandType.TIMER, -1)
