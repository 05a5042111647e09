"""A process that executes tasks for a worker, one after the other, and ends with it.

Started by ``task_pool``. What a task prints goes where the worker's output goes, what it logs goes into
the worker's log. Signals that ask a whole group of processes to stop are for the worker: it lets the
task finish, or kills this process.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from tidewheel.journal import events as ev
from tidewheel.sdk import payload, telling
from tidewheel.sdk.current_task import CurrentTask, enter_task, log_fields
from tidewheel.sdk.definitions import task_hints
from tidewheel.sdk.failures import error_of
from tidewheel.sdk.limits import Limits
from tidewheel.telemetry import switch
from tidewheel.workers.leash import end_with_parent
from tidewheel.workers.task_places import function_at, imported
from tidewheel.workers.task_wire import Beat, Call, Done, Log, Place, Prepare, ProcessEnd, Ready


class Forwarding(logging.Handler):
    """Sends log records to the worker, which writes them into its log."""

    def __init__(self, wire: ProcessEnd) -> None:
        super().__init__()
        self._wire = wire
        #: Where in a trace the call is that is being executed.
        self.in_trace: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Send one."""
        trace = None if not record.exc_info else "".join(traceback.format_exception(*record.exc_info))
        message = record.getMessage().encode("utf-8", "replace").decode()
        fields = {**log_fields(), **self.in_trace}
        self._wire.write(
            Log(name=record.name, level=record.levelno, message=message, trace=trace, fields=fields)
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Drop what cannot be sent."""


class Executor:
    """Executes calls."""

    def __init__(self, wire: ProcessEnd, limits: Limits) -> None:
        self._wire = wire
        self._limits = limits
        self._known: dict[Place, tuple[Any, payload.Hints]] = {}

    def result_of(self, call: Call) -> ev.Result:
        """Execute *call* and return its result, or the error it failed with."""
        try:
            fn, hints = self._find(call.place)
            given = payload.decode_args(hints, call.input, f"input of {call.task}")
            enter_task(
                CurrentTask(
                    run_id=call.run_id,
                    attempt=call.attempt,
                    idempotency_key=call.idempotency_key,
                    last_heartbeat=call.last_heartbeat,
                    _beat=self._beat,
                )
            )
            value = payload.encode(fn(*given), where=f"result of {call.task}")
            self._limits.check_payload(value, f"the result of {call.task}")
            return ev.Result(ok=value)
        except BaseException as problem:  # noqa: BLE001 - a body that calls sys.exit() fails like any other
            return ev.Result(error=error_of(problem))

    def _find(self, place: Place) -> tuple[Any, payload.Hints]:
        known = self._known.get(place)
        if known is None:
            fn = function_at(place)
            known = self._known[place] = fn, task_hints(fn)
        return known

    def _beat(self, details: Any) -> None:
        self._wire.write(Beat(payload.encode(details, where="heartbeat details")))


def serve(wire: ProcessEnd) -> None:
    """Execute calls until the worker lets go."""
    prepare = wire.read()
    if not isinstance(prepare, Prepare):
        return
    sys.path[:] = prepare.path
    if prepare.keeps_stdout:
        os.dup2(2, 1)
    forwarding = Forwarding(wire)
    logging.basicConfig(level=prepare.log_level, handlers=[forwarding])
    try:
        if prepare.home is not None:
            imported(prepare.home)
    except BaseException as problem:  # noqa: BLE001 - the user's module may raise anything
        wire.write(Ready(error_of(problem)))
        return
    telling.turn_on("tidewheel-task", is_own_process=True)
    wire.write(Ready())
    executor = Executor(wire, Limits(payload_max_bytes=prepare.result_max_bytes))
    while isinstance(call := wire.read(), Call):
        trace = call.trace
        if trace is not None and switch.active is not None:
            switch.active.go_on_from(trace)
        forwarding.in_trace = {} if trace is None else {"trace_id": trace.trace_id, "span_id": trace.span_id}
        wire.write(Done(executor.result_of(call)))


def main(arguments: Sequence[str]) -> None:
    """Be the process: *arguments* are the worker's pid, the end of its leash, and the socket."""
    parent, child_end, connection = map(int, arguments)
    end_with_parent(child_end, parent)
    for number in (signal.SIGTERM, signal.SIGINT):
        # A handler, not SIG_IGN: what a task starts must not inherit that it ignores them.
        signal.signal(number, lambda *_: None)
    os.set_inheritable(connection, False)  # noqa: FBT003 - it takes no keyword
    serve(ProcessEnd(socket.socket(fileno=connection)))


if __name__ == "__main__":
    main(sys.argv[1:])
