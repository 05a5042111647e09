"""What is checked where something comes in, beside names and payloads: keys and plain text.

A refusal says what to write instead. Whoever takes requests from outside, be it a client, a
worker that consumes commands or an HTTP door, checks the same and keeps the same dedupe keys.
"""

from __future__ import annotations

from typing import get_args

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.ids import check_path, check_run_id
from tidewheel.journal.snapshot import RunStatus

KEY_MAX = 200
PAGE_MAX = 1_000


def check_key(text: str, what: str) -> str:
    """Return *text* if it may be a key of the caller's own making, else refuse it."""
    if not isinstance(text, str) or not 1 <= len(text) <= KEY_MAX or not text.isprintable():
        shown = repr(text)[:KEY_MAX]
        raise InvalidRequest(f"{what} {shown} is not allowed: use 1 to {KEY_MAX} printable characters")
    return text


def check_any_run_id(text: str) -> str:
    """Return *text* if it may name a run or a child run, such as ``order-42:1``, else refuse it."""
    root, colon, path = text.partition(":") if isinstance(text, str) else (text, "", "")
    check_run_id(root)
    if colon:
        check_path(path)
    return text


def check_text(text: str, what: str, max_bytes: int) -> str:
    """Return *text* if a journal can hold it, else refuse it."""
    if not isinstance(text, str):
        raise InvalidRequest(f"{what} must be text, not {type(text).__name__}")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} holds a lone surrogate, which is no text; replace it") from None
    if size_bytes > max_bytes:
        raise InvalidRequest(f"{what} is {size_bytes:,} bytes, and the limit is {max_bytes:,}: shorten it")
    return text


def signal_key(request_id: str) -> str:
    """Return the dedupe key of a signal whose sender may repeat it under *request_id*."""
    return f"signal={check_key(request_id, 'request_id')}"


def check_status(text: str) -> str:
    """Return *text* if it is one of the contract's words for how a run stands, else refuse it."""
    words = get_args(RunStatus)
    if text not in words:
        raise InvalidRequest(f"status {text!r} is none of {', '.join(words)}")
    return text


def check_page_size(limit: int) -> int:
    """Return *limit* if that many can be listed at a time, else refuse it."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= PAGE_MAX:
        raise InvalidRequest(f"limit {limit!r} is not allowed: list 1 to {PAGE_MAX} runs at a time")
    return limit
