"""The context of a trace as text: what anybody may have written, and what is made of it."""

from __future__ import annotations

import pytest

from tidewheel.telemetry.context import STATE_MAX, TraceContext, headers_of, made_of, of_headers

GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_context_goes_through_headers() -> None:
    """What is put into headers is what is read from them, under either prefix."""
    trace = TraceContext(GOOD, "vendor=1")

    assert of_headers(headers_of(trace)) == trace
    assert of_headers(headers_of(trace, "ce-"), "ce-") == trace
    assert of_headers(headers_of(trace), "ce-") is None


def test_no_context_has_no_headers() -> None:
    """Where nothing is known nothing is said."""
    assert headers_of(None) == {}
    assert headers_of(TraceContext(GOOD)) == {"traceparent": GOOD}


def test_a_context_names_its_trace_and_its_span() -> None:
    """The two ids are the second and the third part."""
    trace = TraceContext(GOOD)

    assert trace.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert trace.span_id == "b7ad6b7169203331"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        GOOD.upper(),
        GOOD + "-more",
        GOOD + "\n",
        "ff" + GOOD[2:],
        "00-" + "0" * 32 + GOOD[35:],
        GOOD[:36] + "0" * 16 + GOOD[52:],
        GOOD.replace("0af7", "0äf7"),
        None,
        7,
    ],
)
def test_what_is_no_context_counts_as_absent(text: object) -> None:
    """Whoever publishes a message may write anything into its headers."""
    assert made_of(text) is None


def test_of_a_later_version_as_much_is_taken_as_is_known() -> None:
    """The standard has readers go on with the parts that they know."""
    assert made_of("01" + GOOD[2:] + "-what-comes") == TraceContext(GOOD)


@pytest.mark.parametrize("state", ["x" * (STATE_MAX + 1), "line\nbreak", "ü=1", 7])
def test_a_state_that_cannot_be_one_is_left_out(state: object) -> None:
    """The trace goes on without what vendors have added to it."""
    assert made_of(GOOD, state) == TraceContext(GOOD)
