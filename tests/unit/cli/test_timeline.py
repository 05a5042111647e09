"""How a run's journal is drawn in a terminal."""

from __future__ import annotations

import datetime as dt
import re

import pytest

from tidewheel.cli.timeline import draw
from tidewheel.cli.timeline.text import clock, columns, cut, duration, padded, plain
from tidewheel.journal import events as ev

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
RESET = ev.Error(type="ConnectionError", message="reset by peer", retryable=True)
STARTED = ev.ExecutionStarted(workflow="fulfil", version="v7", run_id="order-42")


def at(seconds: float) -> dt.datetime:
    """Return the time *seconds* after the start."""
    return T0 + dt.timedelta(seconds=seconds)


def journal(*rows: tuple[float | None, ev.Event]) -> list[ev.Entry]:
    """Return a journal of events, each with the second it was written at."""
    return [ev.Entry(seq, None if s is None else at(s), event) for seq, (s, event) in enumerate(rows)]


def scheduled(path: str, name: str = "charge", kind: ev.InvokeKind = "function") -> ev.InvokeScheduled:
    """Return the scheduling of a step that goes over a queue."""
    return ev.InvokeScheduled(promise_id=path, function_name=name, kind=kind, dispatch="queued")


def started(path: str, attempt: int = 1) -> ev.InvokeStarted:
    """Return the start of an attempt."""
    return ev.InvokeStarted(promise_id=path, attempt=attempt)


def done(path: str, attempt: int = 1) -> ev.InvokeCompleted:
    """Return a completion."""
    return ev.InvokeCompleted(promise_id=path, attempt=attempt, result=ev.Result(ok=1))


def broken(path: str, attempt: int = 1) -> ev.InvokeCompleted:
    """Return the final failure of a step."""
    return ev.InvokeCompleted(promise_id=path, attempt=attempt, result=ev.Result(error=RESET))


def retrying(path: str, retry_at: float | None, attempt: int = 1) -> ev.InvokeRetrying:
    """Return a failed attempt; without a time the step is parked."""
    when = None if retry_at is None else at(retry_at)
    return ev.InvokeRetrying(promise_id=path, failed_attempt=attempt, error=RESET, retry_at=when)


OPEN_RUN = journal(
    (0, STARTED),
    (0, scheduled("0")),
    (2, started("0")),
    (4, retrying("0", 7)),
    (8, started("0", 2)),
    (10, done("0", 2)),
    (10, scheduled("1", "shipping", "workflow")),
    (10, scheduled("2", "mail")),
    (10, scheduled("3", "post")),
    (10, ev.TimerScheduled(promise_id="5", duration=60, fire_at=at(70))),
    (
        10,
        ev.ExecutionAwaiting(
            waiting_on=["4", "5"],
            kind="any",
            signals=[ev.SignalWait(promise_id="4", signal_name="approval")],
        ),
    ),
    (11, started("1")),
    (12, started("2")),
    (14, broken("2")),
    (14, started("3")),
    (16, retrying("3", 23.2)),
)


def test_an_open_run_is_drawn_up_to_now() -> None:
    """Each thing the run asked for has a row: queued, running, failed attempts, backoff, waiting."""
    lines = draw(OPEN_RUN, width=80, now=at(20))

    assert lines == [
        "order-42  fulfil v7  RUNNING  20.0 s so far",
        "1 step done, 1 failed, 1 running, 1 waiting (retry in 3.2 s); 1 timer, 1 signal",
        "                     0                   20.0 s",
        "0 charge             ░░██✗····░███               10.0 s  done, 2 attempts",
        "1 shipping (child)                ░███████████>  10.0 s  running",
        "2 mail                            ░░██✗           4.0 s  failed: ConnectionError",
        "3 post                            ░░░░░█✗·····>  10.0 s  retry in 3.2 s",
        "4 signal 'approval'               ────────────>  10.0 s  waiting",
        "5 timer 1 min 00 s                ────────────>  10.0 s  fires in 50.0 s",
        "░ queued  · retry backoff  ─ waiting  █ running  ✗ failed  > still open",
    ]


def test_ascii_is_enough_for_any_terminal() -> None:
    """The same chart without a character beyond ASCII; names are escaped."""
    entries = journal((0, STARTED), (0, scheduled("0", "café")), (5, started("0")), (10, retrying("0", 20)))

    lines = draw(entries, width=60, now=at(15), ascii_only=True)

    assert lines == [
        "order-42  fulfil v7  RUNNING  15.0 s so far",
        "1 step waiting (retry in 5.0 s)",
        "           0                  15.0 s",
        "0 caf\\xe9  ........=======x~~~~~~~~>  15.0 s  retry in 5.0 s",
        ". queued  ~ retry backoff  = running  x failed  > still open",
    ]


def test_a_failed_run_says_why_and_what_it_left_behind() -> None:
    """A step nobody waits for any more is abandoned; skipped and parked ones are marked too."""
    entries = journal(
        (0, STARTED),
        (0, scheduled("0", "a")),
        (0, scheduled("1", "b")),
        (0, ev.TimerScheduled(promise_id="2", duration=60)),
        (0, ev.PromiseCreated(promise_id="3", name="ok")),
        (1, started("0")),
        (2, retrying("0", None)),
        (4, ev.StepSkipped(promise_id="0", result=ev.NOTHING)),
        (4, ev.TimerCancelled(promise_id="2")),
        (5, ev.PromiseResolved(promise_id="3", result=ev.Result(error=RESET))),
        (10, ev.ExecutionFailed(error=RESET)),
    )

    lines = draw(entries, width=70, now=at(99))

    assert lines == [
        "order-42  fulfil v7  FAILED  10.0 s",
        "1 step skipped, 1 abandoned; 1 timer, 1 promise",
        "failed: ConnectionError: reset by peer",
        "                    0          10.0 s",
        "0 a                 ░█✗┄┄»              4.0 s  skipped",
        "1 b                 ░░░░░░░░░░░░░░░░∅  10.0 s  abandoned",
        "2 timer 1 min 00 s  ─────┤              4.0 s  cancelled",
        "3 promise 'ok'      ───────✗            5.0 s  rejected: Connection...",
        "░ queued  ┄ parked  ─ waiting  █ running  ✗ failed  » skipped",
        "┤ given up  ∅ abandoned",
    ]


def test_segments_are_separated() -> None:
    """After continue-as-new a rule names the next segment."""
    entries = journal(
        (0, STARTED),
        (0, ev.TimerScheduled(promise_id="0", duration=5)),
        (5, ev.TimerFired(promise_id="0")),
        (5, ev.ExecutionContinued(next_position=1)),
        (5, STARTED),
        (5, ev.TimerScheduled(promise_id="1", duration=5)),
        (10, ev.TimerFired(promise_id="1")),
        (10, ev.ExecutionCompleted()),
    )

    lines = draw(entries, width=50)

    assert lines == [
        "order-42  fulfil v7  COMPLETED  10.0 s",
        "no steps; 2 timers; 2 segments",
        "               0              10.0 s",
        "0 timer 5.0 s  ──────────             5.0 s  fired",
        "── segment 2 ─────────────────────────────────────",
        "1 timer 5.0 s            ───────────  5.0 s  fired",
        "─ waiting",
    ]


@pytest.mark.parametrize(
    ("second", "scale", "taken"),
    [(None, "in order (no times)", ""), (3, "in order (all at one time)", "0 s")],
)
def test_without_times_the_order_is_drawn(second: float | None, scale: str, taken: str) -> None:
    """Bars are placed by entry where times are missing or tell nothing apart."""
    entries = journal(
        (second, STARTED), (second, scheduled("0")), (second, started("0")), (second, done("0"))
    )

    lines = draw(entries, width=50)

    assert lines[2].strip() == scale
    assert re.fullmatch(rf"0 charge +░+█+ +{taken} +done", lines[3])


def test_a_time_before_its_predecessor_does_not_turn_a_bar_round() -> None:
    """Clocks of two machines differ; a step never ends before it began."""
    entries = journal(
        (0, STARTED), (5, scheduled("0")), (3, started("0")), (4, done("0")), (10, scheduled("1"))
    )

    lines = draw(entries, width=50)

    assert lines[3].split() == ["0", "charge", "█", "0", "s", "done"]


def test_an_attempt_that_was_lost_is_marked() -> None:
    """A start without an end before the next start was a worker that went away."""
    entries = journal(
        (0, STARTED), (0, scheduled("0")), (0, started("0")), (5, started("0", 2)), (10, done("0", 2))
    )

    lines = draw(entries, width=50, ascii_only=True)

    assert lines[3] == "0 charge  ======x=======  10.0 s  done, 2 attempts"


def test_how_a_step_ended_is_seen_in_a_single_cell() -> None:
    """A short step of a long run shows its success, not the failed attempt before it."""
    entries = journal(
        (0, STARTED),
        (0, scheduled("0")),
        (1, started("0")),
        (2, retrying("0", 3)),
        (3, started("0", 2)),
        (4, done("0", 2)),
        (36000, ev.ExecutionCompleted()),
    )

    lines = draw(entries, width=60)

    assert lines[3].split("  ")[1] == "█"


def test_a_line_with_room_names_the_middle_of_the_scale() -> None:
    """A wide chart is read without counting columns."""
    entries = journal((0, STARTED), (0, scheduled("0")), (100, ev.ExecutionCompleted()))

    lines = draw(entries, width=100)

    assert lines[2].split() == ["0", "50.0", "s", "1", "min", "40", "s"]


def test_very_many_rows_are_left_out_in_the_middle() -> None:
    """The first and the last are drawn, and a line says how to see the others."""
    entries = journal((0, STARTED), *((float(n), scheduled(str(n))) for n in range(5000)))

    lines = draw(entries, width=60, rows_max=4)

    assert [line.split()[0] for line in lines[3:8]] == ["0", "1", "4,996", "4998", "4999"]
    assert lines[5] == "4,996 rows left out here, --all shows all"
    assert len(draw(entries, width=60)) == 200 + 5
    assert len(draw(entries, width=60, rows_max=None)) == 5000 + 4


@pytest.mark.parametrize("width", [1, 2, 10, 20, 33, 47, 60, 80, 200])
def test_no_line_is_wider_than_asked_for(width: int) -> None:
    """Wide characters count as two columns."""
    entries = [*OPEN_RUN, ev.Entry(99, at(17), scheduled("9", "发送邮件🌊" * 9))]

    lines = draw(entries, width=width, now=at(20), run_id="order-" + "9" * 150)

    assert [line for line in lines if columns(line) > width] == []


def test_wide_names_keep_the_bars_aligned() -> None:
    """Names are padded by columns, not by characters."""
    entries = journal((0, STARTED), (0, scheduled("0", "发送")), (0, scheduled("1", "mail")), (10, done("1")))

    lines = draw(entries, width=60)

    assert [columns(line.partition("░")[0]) for line in lines[3:5]] == [8, 8]


def test_control_characters_cannot_reach_the_terminal() -> None:
    """Escape sequences, line ends and changes of direction in names and messages are shown, not obeyed."""
    evil = "a\x1b[2Jb\nc\u202ed\x9b"
    error = ev.Error(type=evil, message=evil)
    entries = journal(
        (0, ev.ExecutionStarted(workflow=evil, version=evil, run_id=evil)),
        (0, scheduled("0", evil)),
        (1, ev.PromiseCreated(promise_id="1", name=evil)),
        (2, ev.InvokeCompleted(promise_id="0", attempt=1, result=ev.Result(error=error))),
        (3, ev.ExecutionFailed(error=error)),
    )

    lines = draw(entries, width=200)

    assert all(line.isprintable() for line in lines)
    assert "a\\x1b[2Jb\\nc\\u202ed\\x9b" in lines[0]


def test_colour_is_only_added_where_asked_for() -> None:
    """Without it there is no code at all; with it the text is the same."""
    coloured = draw(OPEN_RUN, width=80, now=at(20), colour=True)

    without = draw(OPEN_RUN, width=80, now=at(20))
    assert "\x1b" not in "".join(without)
    assert coloured[0] == "\x1b[1morder-42  fulfil v7  \x1b[0m\x1b[33mRUNNING\x1b[0m  20.0 s so far"
    assert [re.sub(r"\x1b\[\d+m", "", line) for line in coloured] == without


def test_an_empty_journal_says_so() -> None:
    """There is nothing to draw, and that is no error."""
    assert draw([], width=80) == ["the journal is empty"]


def test_a_run_without_rows_has_its_header() -> None:
    """A run that waits to be admitted has asked for nothing."""
    entries = journal((0, ev.ExecutionStarted(workflow="fulfil", admission="queued")))

    assert draw(entries, width=80, run_id="r-1", now=at(90)) == [
        "r-1  fulfil  PENDING  1 min 30 s so far",
        "no steps yet",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (0.0123, "12 ms"),
        (0.9996, "1.0 s"),
        (2, "2.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (86399, "1 d 00 h"),
        (1e6, "11 d 14 h"),
        (1.8e305, "for ever"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    """Two units at most, and no sixty seconds."""
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(-3, "00:00"), (12.9, "00:12"), (3723, "1:02:03")])
def test_a_running_clock_counts_whole_seconds(seconds: float, text: str) -> None:
    """Hours are shown once there are any."""
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("发送", 4), ("🌊", 2), ("e\u0301", 1), ("❤\ufe0f", 2), ("", 0)]
)
def test_width_is_counted_in_columns(text: str, width: int) -> None:
    """East Asian characters and emoji take two, marks on a letter none."""
    assert columns(text) == width


def test_text_is_cut_between_wide_characters() -> None:
    """Half a character cannot be shown: the column is left empty."""
    assert cut("发送邮件", 6) == "发..."
    assert padded("发送邮件", 6) == "发... "
    assert (cut("abcdef", 2), cut("abcdef", 6)) == ("..", "abcdef")


def test_text_is_made_plain() -> None:
    """What is not shown as itself is written as an escape; letters of all scripts stay."""
    assert plain("é发\t\x00\ud800\u2028") == "é发\\t\\x00\\ud800\\u2028"


def test_an_inline_step_runs_from_the_moment_it_is_scheduled() -> None:
    """It is in no queue: its start is only written late, or with its end."""
    inline = ev.InvokeScheduled(promise_id="0", function_name="charge")
    entries = journal((0, STARTED), (0, inline), (5, started("0")), (10, done("0")))

    lines = draw(entries, width=60)

    assert "░" not in "".join(lines)
    assert lines[3].endswith("done")
