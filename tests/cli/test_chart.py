"""The chart of a recorded run: what is drawn, how, and that any viewer takes it."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tidewheel.journal import events as ev
from tidewheel.journal.graph import NODES_MAX, label, mermaid

Recorded = dict[str, list[ev.Entry]]
NODE = re.compile(r'(\w+)(\W+?)"(.*)"(\W+?):::(\w+)')
EDGE = re.compile(r"(\w+) (-->|-\.->) (\w+)")
FRAME = re.compile(r'subgraph \w+\["(.*)"\]')
#: What viewers refuse to draw more of.
EDGES_MAX, CHARACTERS_MAX = 500, 50_000


class Chart(NamedTuple):
    """A chart taken apart: nodes as (before, label, after, class), edges, and frames with their members."""

    nodes: dict[str, tuple[str, str, str, str]]
    edges: list[tuple[str, str, str]]
    frames: dict[str, list[str]]

    def named(self, name: str) -> str:
        """Return the id of the one node whose label begins with *name*."""
        (found,) = [key for key, node in self.nodes.items() if node[1].split("<br/>")[0] == name]
        return found

    def origins(self, target: str) -> set[str]:
        """Return the names of the nodes that lead to *target*, through joints."""
        found: set[str] = set()
        for origin, _arrow, reached in self.edges:
            if reached == target:
                name = self.nodes[origin][1].split("<br/>")[0]
                found |= {name} if name.strip() else self.origins(origin)
        return found


def taken_apart(text: str) -> Chart:
    """Read a chart; a line that is none of what may be there is an error."""
    first, *lines = text.splitlines()
    assert first == "flowchart TD"
    chart = Chart({}, [], {})
    frame: list[str] | None = None
    for line in map(str.strip, lines):
        if found := NODE.fullmatch(line):
            chart.nodes[found[1]] = (found[2], found[3], found[4], found[5])
            if frame is not None:
                frame.append(found[1])
        elif found := EDGE.fullmatch(line):
            chart.edges.append((found[1], found[2], found[3]))
        elif found := FRAME.fullmatch(line):
            frame = chart.frames.setdefault(found[1], [])
        elif line == "end":
            frame = None
        else:
            assert line.startswith(("classDef ", "%% ")), line
    assert {end for edge in chart.edges for end in (edge[0], edge[2])} <= chart.nodes.keys()
    return chart


def numbered(events: list[ev.Event]) -> list[ev.Entry]:
    """Return *events* as a journal."""
    return [ev.Entry(number, None, event) for number, event in enumerate(events)]


def test_steps_children_and_join_sets_have_their_shapes(recorded: Recorded) -> None:
    """A retried step leans, a child is a subroutine, members of a join set are framed."""
    chart = taken_apart(mermaid(recorded["completed"]))

    assert chart.nodes[chart.named("order")] == ("([", "order<br/>start", "])", "done")
    retried = ("[/", "charge<br/>path 0, 3 attempts<br/>completed", "/]", "retried")
    assert chart.nodes[chart.named("charge")] == retried
    child = ("[[", "receipt<br/>path 2, 1 attempt, child run<br/>completed", "]]", "done")
    assert chart.nodes[chart.named("receipt")] == child
    assert chart.nodes[chart.named("completed")] == ("([", "completed", "])", "done")
    members = [chart.nodes[key][1] for key in chart.frames["join set 3"]]
    assert members == [
        "ship<br/>path 4, 1 attempt, taken 1<br/>completed",
        "ship<br/>path 5, 1 attempt, taken 2<br/>completed",
    ]


def test_arrows_lead_from_what_was_shown_to_what_was_asked_for(recorded: Recorded) -> None:
    """Also from what the code had seen earlier, dotted, where it asked for nothing then."""
    chart = taken_apart(mermaid(recorded["completed"]))

    assert chart.origins(chart.named("order")) == set()
    assert chart.origins(chart.named("charge")) == {"order"}
    assert chart.origins(chart.named("receipt")) == {"charge"}
    for member in chart.frames["join set 3"]:
        assert chart.origins(member) == {"ship", "receipt"}
    arrows = [arrow for _origin, arrow, target in chart.edges if target == chart.named("completed")]
    assert sorted(arrows) == ["-->", "-.->"]


def test_a_failed_step_and_a_failed_run_stand_out(recorded: Recorded) -> None:
    """By their class, and the step by its shape too."""
    chart = taken_apart(mermaid(recorded["failed"]))

    failed = ("{{", "ship<br/>path 0, 1 attempt<br/>failed with OSError", "}}", "failed")
    assert chart.nodes[chart.named("ship")] == failed
    assert chart.nodes[chart.named("note")][1] == "note<br/>path 1, 1 attempt, operation<br/>completed"
    end = chart.named("failed with OSError")
    assert chart.nodes[end] == ("([", "failed with OSError<br/>ship#58; no van", "])", "failed")
    assert chart.origins(end) == {"note"}


def test_timers_signals_and_promises_are_nodes(recorded: Recorded) -> None:
    """Each with its outcome."""
    chart = taken_apart(mermaid(recorded["answered"]))

    labels = {node[1]: node[3] for node in chart.nodes.values()}
    assert labels["signal approved<br/>path 0<br/>received"] == "done"
    assert labels["timer 60 s<br/>path 1<br/>cancelled"] == "dropped"
    assert labels["timer 5 s<br/>path 2<br/>fired"] == "done"
    assert labels["promise answer<br/>path 3<br/>resolved"] == "done"


def test_a_run_that_waits_ends_in_what_it_waits_for(recorded: Recorded) -> None:
    """The chart of an open run says that it is open."""
    chart = taken_apart(mermaid(recorded["blocked"]))

    end = chart.named("Blocked")
    assert chart.nodes[end] == ("([", "Blocked<br/>waits for 0#44; 1", "])", "pending")
    assert chart.origins(end) == {"signal approved", "timer 60 s"}


def test_a_cancellation_is_a_node_that_leads_to_the_end(recorded: Recorded) -> None:
    """Nobody in the code asked for it, so nothing leads to it."""
    chart = taken_apart(mermaid(recorded["cancelled"]))

    cancel = chart.named("cancel requested")
    assert chart.nodes[cancel][1] == "cancel requested<br/>changed my mind"
    assert chart.origins(cancel) == set()
    assert chart.origins(chart.named("cancelled")) == {"cancel requested"}


def test_segments_follow_each_other(recorded: Recorded) -> None:
    """A run that continued as new is one chart."""
    chart = taken_apart(mermaid(recorded["counted"]))
    half = taken_apart(mermaid(recorded["continued"]))

    labels = [node[1] for node in chart.nodes.values()]
    assert "counter<br/>start" in labels
    assert "counter<br/>next segment" in labels
    assert chart.origins(chart.named("continued as new")) == {"charge"}
    assert chart.origins(chart.named("completed")) == {"charge"}
    assert [node[1] for node in half.nodes.values()][-1] == "continued as new"


@pytest.mark.parametrize("width", [1, 7, 5000])
def test_a_long_run_is_cut_to_what_viewers_accept(width: int) -> None:
    """The first and last nodes stay, and one says how many are missing."""
    steps = 10_000
    events: list[ev.Event] = [ev.ExecutionStarted(workflow="w")]
    for first in range(0, steps, width):
        paths = [str(path) for path in range(first, min(first + width, steps))]
        events += [ev.JoinSetCreated(join_set_id=f"9.{first}")]
        for path in paths:
            events += [ev.InvokeScheduled(promise_id=path, function_name="a-step_with.a-long.name" * 9)]
            events += [ev.JoinSetSubmitted(join_set_id=f"9.{first}", promise_id=path)]
        events += [ev.ExecutionAwaiting(waiting_on=paths, kind="all")]
        events += [ev.InvokeCompleted(promise_id=p, result=ev.Result(ok=1), attempt=1) for p in paths]
        events += [ev.ExecutionResumed(applied=list(paths))]
    events += [ev.ExecutionCompleted()]

    text = mermaid(numbered(events))

    chart = taken_apart(text)
    left_out = steps + 2 - NODES_MAX
    assert chart.nodes["more"][1] == f"{left_out:,} more are left out".replace(",", "#44;")
    assert chart.named("completed")
    assert chart.named("w")
    assert len(chart.edges) < EDGES_MAX
    assert len(text) < CHARACTERS_MAX


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("charge_card", "charge_card"),
        ("send-mail v1.0", "send-mail v1.0"),
        ("Größe 大", "Größe 大"),
        ('a"]; b', "a#34;#93;#59; b"),
        ("#quot;", "#35;quot#59;"),
        ("<b>&amp;", "#60;b#62;#38;amp#59;"),
        ("`code`", "#96;code#96;"),
        ("1. item", "1#46; item"),
        ("- item", "#45; item"),
        ("__init__", "#95;#95;init#95;#95;"),
        ("%%{init: 1}%%", "#37;#37;#123;init#58; 1#125;#37;#37;"),
        ("a\nb\x00c\u2028d", "a b c d"),
        ("x" * 49, "x" * 45 + "#46;#46;#46;"),
    ],
)
def test_any_text_is_safe_in_a_label(text: str, safe: str) -> None:
    """What could end the label, be markup, an entity, a list or a directive is written by its number."""
    assert label(text) == safe


def test_hostile_names_stay_in_their_labels() -> None:
    """Names, errors and reasons come from a journal that anybody may have written."""
    evil = '"]\nend\nclick n0 call alert() %%{init: {}}%%'
    events: list[ev.Event] = [
        ev.ExecutionStarted(workflow=evil),
        ev.InvokeScheduled(promise_id="0", function_name=evil),
        ev.InvokeCompleted(promise_id="0", result=ev.Result(error=ev.Error(type=evil)), attempt=1),
        ev.PromiseCreated(promise_id="1", name=evil),
        ev.ExecutionAwaiting(
            waiting_on=["2"], kind="signal", signals=[ev.SignalWait(promise_id="2", signal_name=evil)]
        ),
        ev.CancelRequested(reason=evil),
        ev.ExecutionFailed(error=ev.Error(type=evil, message=evil)),
    ]

    chart = taken_apart(mermaid(numbered(events)))

    assert len(chart.nodes) == len(events) - 1
    assert not any(set(node[1].replace("<br/>", "")) & set('"[]{}()<>`%:') for node in chart.nodes.values())


def test_what_does_not_fit_is_left_out() -> None:
    """The chart of a journal that breaks rules shows what can be shown."""
    events: list[ev.Event] = [
        ev.ExecutionStarted(),
        ev.InvokeStarted(promise_id="7", attempt=1),
        ev.StepRetryRequested(promise_id="7"),
        ev.InvokeCompleted(promise_id="7", result=ev.Result(ok=1), attempt=1),
        ev.TimerFired(promise_id="8"),
        ev.TimerCancelled(promise_id="8"),
        ev.JoinSetSubmitted(join_set_id="1", promise_id="9"),
        ev.JoinSetAwaited(join_set_id="1", promise_id="9"),
        ev.SignalReceived(promise_id="3", signal_name="s", delivery_id=1),
        ev.ExecutionResumed(applied=["7", "3", "3"]),
        ev.ExecutionResumed(),
    ]

    chart = taken_apart(mermaid(numbered(events)))

    assert [node[1] for node in chart.nodes.values()] == [
        "run<br/>start",
        "signal s<br/>path 3<br/>received",
        "Running",
    ]
    assert mermaid([]).startswith("flowchart TD\n")


def test_a_step_that_is_not_over_says_how_it_stands() -> None:
    """Scheduled, running, retrying, parked, tried again, skipped."""
    start: list[ev.Event] = [ev.ExecutionStarted(), ev.InvokeScheduled(promise_id="0", function_name="f")]
    more: list[tuple[ev.Event, str]] = [
        (ev.InvokeStarted(promise_id="0", attempt=1), "f<br/>path 0, 1 attempt<br/>running"),
        (
            ev.InvokeRetrying(promise_id="0", failed_attempt=1),
            "f<br/>path 0, 1 attempt<br/>parked after Unknown",
        ),
        (ev.StepRetryRequested(promise_id="0"), "f<br/>path 0, 1 attempt<br/>another try was asked for"),
        (
            ev.InvokeScheduled(promise_id="0", function_name="f", logical_attempt=2),
            "f<br/>path 0, 1 attempt<br/>another try was asked for",
        ),
        (ev.StepSkipped(promise_id="0", result=ev.Result(ok=1)), "f<br/>path 0, 1 attempt<br/>skipped"),
    ]

    for count, (_event, says) in enumerate(more, 1):
        chart = taken_apart(mermaid(numbered(start + [event for event, _says in more[:count]])))
        assert chart.nodes["n1"][1] == says
