"""Every span, metric and attribute, as data: ``docs/telemetry.md`` lists the same, and a test compares.

The names that begin with ``messaging.`` and ``error.`` are those of OpenTelemetry's semantic conventions for
messaging; those of ours begin with ``tidewheel.``. An attribute of a metric has few values, however many runs
there are: ids of runs and steps are attributes of spans alone.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

# Attributes of spans alone.
RUN_ID: Final = "tidewheel.run.id"
#: The promise of a step within its run, and which execution of it this is.
STEP: Final = "tidewheel.step.path"
ATTEMPT: Final = "tidewheel.step.attempt"
#: How many events an activation appended.
EVENTS: Final = "tidewheel.events"
SIGNAL: Final = "tidewheel.signal"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION: Final = "messaging.message.conversation_id"
BATCH: Final = "messaging.batch.message_count"
ROUTING_KEY: Final = "messaging.rabbitmq.destination.routing_key"

# Attributes of both.
NAMESPACE: Final = "tidewheel.namespace"
WORKFLOW: Final = "tidewheel.workflow"
TASK: Final = "tidewheel.task"
OUTCOME: Final = "tidewheel.outcome"
STATUS: Final = "tidewheel.run.status"
ALERT: Final = "tidewheel.alert"
SEVERITY: Final = "tidewheel.alert.severity"
ERROR_TYPE: Final = "error.type"
SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"

#: What every message's span says.
_MESSAGING: Final = (SYSTEM, OPERATION, OPERATION_TYPE, DESTINATION)

Kind: TypeAlias = Literal["CLIENT", "PRODUCER", "CONSUMER", "INTERNAL"]
Instrument: TypeAlias = Literal["counter", "histogram", "gauge"]


class SpanName(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of span: its name begins with ``verb``, and what it is about may follow."""

    verb: str
    #: What follows the verb, in angle brackets where it differs from span to span.
    about: str = ""
    kind: Kind
    meaning: str
    attributes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name as the page shows it."""
        return f"{self.verb} {self.about}".rstrip()

    def of(self, what: str) -> str:
        """Return the name of a span that is about *what*."""
        return f"{self.verb} {what}"


class MetricName(msgspec.Struct, frozen=True, kw_only=True):
    """A metric: what it counts or measures, in which unit, and by what it can be told apart."""

    name: str
    instrument: Instrument
    unit: str
    meaning: str
    attributes: tuple[str, ...] = ()
    #: The upper bounds of a histogram's buckets.
    bounds: tuple[float, ...] = ()


# Spans.

START: Final = SpanName(
    verb="start",
    about="<workflow>",
    kind="CLIENT",
    meaning="A client starts a run: until it is committed, and workers are told.",
    attributes=(WORKFLOW, NAMESPACE, RUN_ID),
)
SIGNAL_RUN: Final = SpanName(
    verb="signal",
    kind="CLIENT",
    meaning="A client sends a signal.",
    attributes=(SIGNAL, NAMESPACE, RUN_ID),
)
CANCEL: Final = SpanName(
    verb="cancel", kind="CLIENT", meaning="A client asks a run to stop.", attributes=(NAMESPACE, RUN_ID)
)
RESOLVE: Final = SpanName(
    verb="resolve",
    kind="CLIENT",
    meaning="A client resolves or rejects a promise.",
    attributes=(NAMESPACE, RUN_ID),
)
COMMAND: Final = SpanName(
    verb="send",
    about="tidewheel.commands",
    kind="PRODUCER",
    meaning="`publish_start`: until the broker has the command.",
    attributes=(*_MESSAGING, ROUTING_KEY, CONVERSATION, WORKFLOW, NAMESPACE, RUN_ID),
)
PROCESS: Final = SpanName(
    verb="process",
    about="<queue>",
    kind="CONSUMER",
    meaning="A worker takes a turn of a run that a message asked for: its code is shown what is new, and "
    "what it asks for is committed.",
    attributes=(*_MESSAGING, MESSAGE_ID, CONVERSATION, WORKFLOW, NAMESPACE, RUN_ID, EVENTS),
)
ACTIVATE: Final = SpanName(
    verb="activate",
    about="<workflow>",
    kind="INTERNAL",
    meaning="The same for a turn that no message asked for: a step or a timer of the run ended in this "
    "worker.",
    attributes=(WORKFLOW, NAMESPACE, RUN_ID, EVENTS),
)
STEP_HERE: Final = SpanName(
    verb="task",
    about="<task>",
    kind="INTERNAL",
    meaning="One attempt of a task or operation that the run's own worker executes.",
    attributes=(TASK, NAMESPACE, RUN_ID, STEP, ATTEMPT, OUTCOME, ERROR_TYPE),
)
STEP_QUEUED: Final = SpanName(
    verb="task",
    about="<task>",
    kind="CONSUMER",
    meaning="One attempt of a task that came over a queue.",
    attributes=(
        *_MESSAGING, MESSAGE_ID, CONVERSATION, TASK, NAMESPACE, RUN_ID, STEP, ATTEMPT, OUTCOME, ERROR_TYPE,
    ),
)  # fmt: skip
PUBLISH: Final = SpanName(
    verb="send",
    about="tidewheel.events",
    kind="PRODUCER",
    meaning="A relay publishes events of several runs together.",
    attributes=(*_MESSAGING, BATCH),
)
PROJECT: Final = SpanName(
    verb="process",
    about="tidewheel.events",
    kind="CONSUMER",
    meaning="A projector takes in events of several runs together.",
    attributes=(*_MESSAGING, BATCH),
)

SPANS: Final = (
    START, SIGNAL_RUN, CANCEL, RESOLVE, COMMAND, PROCESS, ACTIVATE, STEP_HERE, STEP_QUEUED, PUBLISH, PROJECT,
)  # fmt: skip

# Metrics.

#: From half a millisecond to a minute, as the semantic conventions have it for messaging, and finer below.
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

RUNS_STARTED: Final = MetricName(
    name="tidewheel.runs.started",
    instrument="counter",
    unit="{run}",
    meaning="Runs that were started, child runs too; told by whoever committed the start.",
    attributes=(WORKFLOW, NAMESPACE),
)
RUNS_ENDED: Final = MetricName(
    name="tidewheel.runs.ended",
    instrument="counter",
    unit="{run}",
    meaning="Runs that ended: `completed`, `failed` or `cancelled`.",
    attributes=(STATUS, WORKFLOW, NAMESPACE),
)
STEP_ATTEMPTS: Final = MetricName(
    name="tidewheel.step.attempts",
    instrument="counter",
    unit="{attempt}",
    meaning="Attempts of steps that were executed: `ok`, `error`, or `given_up` where nobody wants the "
    "result.",
    attributes=(TASK, OUTCOME, ERROR_TYPE),
)
STEP_DURATION: Final = MetricName(
    name="tidewheel.step.duration",
    instrument="histogram",
    unit="s",
    meaning="How long the body of an attempt took.",
    attributes=(TASK, OUTCOME),
    bounds=_SECONDS,
)
APPEND_DURATION: Final = MetricName(
    name="tidewheel.append.duration",
    instrument="histogram",
    unit="s",
    meaning="How long a worker waited for the store to commit an append.",
    attributes=(ERROR_TYPE,),
    bounds=_SECONDS,
)
APPEND_GROUP: Final = MetricName(
    name="tidewheel.append.group",
    instrument="histogram",
    unit="{append}",
    meaning="Appends of a worker that one transaction committed.",
    bounds=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
SENT: Final = MetricName(
    name="messaging.client.sent.messages",
    instrument="counter",
    unit="{message}",
    meaning="Messages that were published: hints, commands, replies, events, alerts, by where they went.",
    attributes=(*_MESSAGING, ERROR_TYPE),
)
CONSUMED: Final = MetricName(
    name="messaging.client.consumed.messages",
    instrument="counter",
    unit="{message}",
    meaning="Messages that were delivered, by the queue they came from.",
    attributes=(SYSTEM, DESTINATION),
)
OPERATION_DURATION: Final = MetricName(
    name="messaging.client.operation.duration",
    instrument="histogram",
    unit="s",
    meaning="How long the broker took to take what was published together.",
    attributes=(*_MESSAGING, ERROR_TYPE),
    bounds=_SECONDS,
)
PROCESS_DURATION: Final = MetricName(
    name="messaging.process.duration",
    instrument="histogram",
    unit="s",
    meaning="How long a turn that a message asked for took, or events that were projected together.",
    attributes=(*_MESSAGING, ERROR_TYPE),
    bounds=_SECONDS,
)
WORKER_STEPS: Final = MetricName(
    name="tidewheel.worker.steps",
    instrument="gauge",
    unit="{step}",
    meaning="Steps in this worker: `running`, or `waiting` for a slot.",
    attributes=(OUTCOME,),
)
WORKER_RUNS: Final = MetricName(
    name="tidewheel.worker.runs",
    instrument="gauge",
    unit="{run}",
    meaning="Runs that this worker keeps in memory.",
)
HINTS_DROPPED: Final = MetricName(
    name="tidewheel.hints.dropped",
    instrument="counter",
    unit="{message}",
    meaning="Hints that a worker could not publish; the keeper publishes them again.",
)
RELAY_EVENTS: Final = MetricName(
    name="tidewheel.relay.events",
    instrument="counter",
    unit="{event}",
    meaning="What became of events that this relay offered: `taken`, `unwanted` (taken, for no queue), "
    "`refused` (to be tried again), `dead`.",
    attributes=(OUTCOME,),
)
OUTBOX_BACKLOG: Final = MetricName(
    name="tidewheel.outbox.backlog",
    instrument="gauge",
    unit="{row}",
    meaning="Rows of the outbox that wait: `pending`, counted up to 10,000, or `dead`; told by relays.",
    attributes=(OUTCOME,),
)
OUTBOX_AGE: Final = MetricName(
    name="tidewheel.outbox.age",
    instrument="gauge",
    unit="s",
    meaning="How long the oldest of them has waited.",
)
PROJECTOR_EVENTS: Final = MetricName(
    name="tidewheel.projector.events",
    instrument="counter",
    unit="{event}",
    meaning="Events that came to this projector: `taken`, `repeated` or `buried`.",
    attributes=(OUTCOME,),
)
PROJECTOR_GAPS: Final = MetricName(
    name="tidewheel.projector.gaps",
    instrument="counter",
    unit="{gap}",
    meaning="Gaps that this projector found.",
)
PROJECTOR_LAG: Final = MetricName(
    name="tidewheel.projector.lag",
    instrument="gauge",
    unit="s",
    meaning="How long ago what this projector took in last was written.",
)
ALERTS: Final = MetricName(
    name="tidewheel.alerts",
    instrument="counter",
    unit="{alert}",
    meaning="Alerts that were raised.",
    attributes=(ALERT, SEVERITY, NAMESPACE),
)

METRICS: Final = (
    RUNS_STARTED, RUNS_ENDED, STEP_ATTEMPTS, STEP_DURATION, APPEND_DURATION, APPEND_GROUP, SENT, CONSUMED,
    OPERATION_DURATION, PROCESS_DURATION, WORKER_STEPS, WORKER_RUNS, HINTS_DROPPED, RELAY_EVENTS,
    OUTBOX_BACKLOG, OUTBOX_AGE, PROJECTOR_EVENTS, PROJECTOR_GAPS, PROJECTOR_LAG, ALERTS,
)  # fmt: skip
