"""The text of ``docs/journal.md``, generated from the tables that the code runs on.

``python -m tidewheel.journal.document > docs/journal.md`` writes it and a test keeps
it up to date, so the page cannot say anything else than the code does: classes,
fields and docstrings are read, the state diagram is drawn from ``TRANSITIONS``.
How a field's type is worded is in ``wording``.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tidewheel.journal import codec, public, status
from tidewheel.journal.events import (
    EVENT_TYPES,
    Category,
    Error,
    Event,
    ExecutionStarted,
    InvokeLimits,
    Result,
    SignalWait,
)
from tidewheel.journal.public.run import RUN_EVENTS
from tidewheel.journal.retry import RetryPolicy
from tidewheel.journal.rules import RULES
from tidewheel.journal.wording import code, field_rows, listed, said, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import msgspec

INTRO: Final = """\
# The journal

A run's journal is the append-only list of what happened to it and of what its code asked for.
It is the only truth about the run: status, results, public events and snapshots are folded from it.
An entry has a `run_seq`, which starts at 0 and has no holes, the `type` of its event, the time `at`
which it was written (for people; nothing is decided by it), and the event's fields as `data`.

This page is generated from the code: `python -m tidewheel.journal.document > docs/journal.md`.
"""
CATEGORIES: Final[dict[Category, str]] = {
    Category.LIFECYCLE: "A run starts once and ends once; its segments follow each other.",
    Category.SIDE_EFFECT: "What was done outside is not done again on replay: scheduled is the intent, "
    "started is in flight, completed is the cached result.",
    Category.NONDETERMINISM: "The code gets the same random values and times on every replay.",
    Category.CONTROL_FLOW: "The code takes the same path on every replay.",
    Category.CONCURRENCY: "Concurrent results come in the same order on every replay.",
    Category.STATE: "What the run remembers, and what is resolved from outside.",
    Category.GOVERNANCE: "What operators and policies decided.",
    Category.DECIDER: "What deciders record.",
}
FAMILIES: Final[dict[str, str]] = {
    "S": "Structure",
    "SE": "Side effects",
    "CF": "Control flow",
    "JS": "Join sets",
    "GV": "Governance",
}
VALUES: Final[tuple[type[msgspec.Struct], ...]] = (Result, Error, SignalWait, InvokeLimits, RetryPolicy)


def document() -> str:
    """Return the whole page."""
    parts = (INTRO, _states(), _events(), _rules(), _public_events(), _storage())
    return "\n".join(parts)


def _states() -> str:
    phases = table(
        ("Phase", "In the journal's words", "In the contract's words", "Ends the run"),
        (
            [p.value, status.WORDS[p], f"`{status.PUBLIC[p]}`", "yes" if p in status.ENDED else ""]
            for p in status.Phase
        ),
    )
    flags = table(
        ("Event", "Sets", "Clears"),
        (
            [code(kind.__name__), _flags(sets, wanted=True), _flags(sets, wanted=False)]
            for kind, sets in status.FLAGS.items()
        ),
    )
    unchanged = table(
        ("Phase", "Legal, and the phase stays"),
        ([phase.value, listed(kinds)] for phase, kinds in _staying()),
    )
    return f"""\
## States

A run is in one phase. An event that the diagram and the tables do not have for a phase is illegal there.

```mermaid
stateDiagram-v2
{chr(10).join(_edges())}
```

{phases}
Next to its phase a run may be *cancelling* (shown as Cancelling) or *paused* (shown as Paused, `PAUSED`):

{flags}
{unchanged}"""


def _edges() -> Iterator[str]:
    """Draw every transition that changes the phase; a segment opens by its admission."""
    labels: defaultdict[tuple[status.Phase, status.Phase], list[str]] = defaultdict(list)
    for (source, kind), target in status.TRANSITIONS.items():
        if kind is ExecutionStarted:
            for admission, opened in status.OPENS_AS.items():
                labels[source, opened].append(f"{kind.__name__} ({admission})")
        elif target is not source:
            labels[source, target].append(kind.__name__)
    yield f"    [*] --> {status.Phase.NEW.value}"
    for phase in status.Phase:
        for (source, target), names in labels.items():
            if source is phase:
                yield f"    {source.value} --> {target.value}: {', '.join(names)}"
        if phase in status.ENDED:
            yield f"    {phase.value} --> [*]"


def _staying() -> Iterator[tuple[status.Phase, list[str]]]:
    for phase in status.Phase:
        kinds = [kind for (source, kind), target in status.TRANSITIONS.items() if source is target is phase]
        if kinds:
            yield phase, sorted(kind.__name__ for kind in kinds)


def _flags(sets: dict[str, bool], *, wanted: bool) -> str:
    return ", ".join(flag for flag, value in sets.items() if value is wanted)


def _events() -> str:
    parts = [f"## Events\n\n{len(EVENT_TYPES)} types. A reader tolerates fields it does not know.\n"]
    for category, words in CATEGORIES.items():
        parts.append(f"### {category.value}\n\n{words}\n")
        parts += (_fields("####", kind) for kind in EVENT_TYPES.values() if kind.category is category)
    parts.append("### Values inside events\n")
    parts += (_fields("####", kind) for kind in VALUES)
    return "\n".join(parts)


def _fields(level: str, kind: type[msgspec.Struct]) -> str:
    rows = list(field_rows(kind))
    fields = table(("Field", "Type", "Required"), rows) if rows else "No fields.\n"
    return f"{level} {kind.__name__}\n\n{said(kind)}\n\n{fields}"


def _rules() -> str:
    parts = [
        "## Rules\n\nEvery journal keeps these; `tidewheel journal verify` names each breach by its id.\n"
    ]
    for family, title in FAMILIES.items():
        rules = [rule for rule in RULES.values() if rule.id.partition("-")[0] == family]
        rows = ([rule.id, code(rule.name), rule.text] for rule in rules)
        parts.append(f"### {title}\n\n{table(('Id', 'Name', 'Rule'), rows)}")
    return "\n".join(parts)


def _public_events() -> str:
    mapping = table(
        ("Journal event", "Published as"), ([code(k.__name__), _published(k)] for k in _handled())
    )
    data = table(
        ("Public event", "`data`"), ([code(name), listed(keys)] for name, keys in public.PUBLIC_TYPES.items())
    )
    return f"""\
## Public events

An entry publishes at most one event, under its own `run_seq`. `prevSeq` is the `run_seq` of the run's
previous public event: a reader that holds it has missed nothing. Journal events that are not listed
publish nothing.

{mapping}
The key of an event is `SHA256(runId|stepId|logicalAttemptId|eventType|planVersion)`: UTF-8, joined by
one `|`, lower-case hex. A run uses a key once; what would use it again publishes nothing. Run events use
the step `RUN` (in the event `stepId` is null) and the logical attempt `1`; pause, resume and signals add
`#<signal id>` to it, or `#<run_seq>` where there is none, and a decider's events add `#<run_seq>`. A step's
id is its key, else its path; where the run has used that id before at that attempt, the key has
`#<path>` after it. The event's id is the UUID made of the key's first 16 bytes.

`parentEventId` is the `StepStarted` of what completed or failed, else the run's `RunStarted`.
`causedBySignalId` names the signal that an event is about, or that asked for the step's attempt.

{data}
{_fields("###", public.PublicEvent)}"""


def _handled() -> Iterable[type[Event]]:
    return (kind for kind in EVENT_TYPES.values() if kind in public.HANDLERS)


def _published(kind: type[Event]) -> str:
    if kind in RUN_EVENTS:
        rule = RUN_EVENTS[kind]
        return f"`{rule.type}`, once per signal." if rule.repeats else f"`{rule.type}`."
    return said(public.HANDLERS[kind])


def _storage() -> str:
    """What is written today, and what earlier releases wrote and is still read."""
    older = listed(codec.UPCASTERS) if codec.UPCASTERS else "none so far"
    return f"""\
## Storage

The events of one append are stored together, in one row: a codec id, bytes and their CRC-32. Codec `json`:
the bytes are a list of objects as JSON text, kept as written; each has the event's `type` beside its fields.
A changed meaning gives a type another name, such as `InvokeStarted.2`; older forms are brought up one by one
when read ({older}). A type that is newer than the release is refused, never guessed."""


if __name__ == "__main__":
    sys.stdout.write(document())
