"""Writing to standard output and standard error.

Results go to standard output, always as UTF-8; what is meant for people goes to standard
error. When the reader has left, as ``| head`` does, the rest is dropped without a word
and the command ends with the exit code it would have had. A disk that is full is told.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any, TextIO

import msgspec

from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure


def prepare() -> None:
    """Make standard output UTF-8 whatever the locale is, and let no character stop us."""
    for stream, encoding in ((sys.stdout, "utf-8"), (sys.stderr, None)):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def emit(text: str) -> None:
    """Write lines of a result."""
    _write(sys.stdout, text)


def emit_json(value: Any) -> None:
    """Write a result as JSON on one line."""
    emit(one_line(value))


def say(text: str) -> None:
    """Tell people something next to the result."""
    _write(sys.stderr, text)


def draw(text: str) -> None:
    """Write to a terminal on standard error as it is, without ending the line."""
    _write(sys.stderr, text, end="")


def one_line(value: Any) -> str:
    """Return *value* as JSON on one line; what UTF-8 cannot hold is escaped when it is written."""
    return json.dumps(value, ensure_ascii=False)


def note(message: str, *, as_json: bool) -> None:
    """Tell of something that people may not have expected."""
    say(one_line({"note": {"message": message}}) if as_json else f"note: {message}")


def warn(message: str, *, as_json: bool) -> None:
    """Tell of something that makes a result doubtful."""
    say(one_line({"warning": {"message": message}}) if as_json else f"warning: {message}")


def report(failure: Failure, *, as_json: bool) -> None:
    """Tell why the command could not do what was asked, and what to do."""
    if as_json:
        say(one_line({"error": {"type": failure.kind, "message": failure.message}}))
        return
    if failure.trace:
        say(failure.trace.rstrip("\n"))
    say(f"error: {failure.message}")
    if failure.advice:
        say(f"  {failure.advice}")


def close() -> None:
    """Write what is still buffered, while a reader who left can still be ignored."""
    for stream in (sys.stdout, sys.stderr):
        _write(stream, "", end="")


def plain(value: Any) -> Any:
    """Return a value of the library as plain dicts, lists, text and numbers, as JSON has them."""
    return msgspec.json.decode(msgspec.json.encode(value))


def is_terminal() -> bool:
    """Tell whether people read standard output as it is written."""
    return sys.stdout is not None and sys.stdout.isatty()


def wants_colour() -> bool:
    """Tell whether standard output may be coloured: NO_COLOR and a dumb terminal say no."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _write(stream: TextIO | None, text: str, end: str = "\n") -> None:
    if stream is None:  # a process may be started without it
        return
    try:
        stream.write(text + end)
        stream.flush()
    except BrokenPipeError:
        _drop_the_rest(stream)
    except OSError as problem:
        if stream is sys.stdout:
            raise unwritable(problem) from problem
        _drop_the_rest(stream)  # what standard error cannot take, nobody can be told


def unwritable(problem: OSError) -> Failure:
    """Give standard output up, and return what to say of it."""
    _drop_the_rest(sys.stdout)
    message = f"standard output cannot be written: {problem.strerror or problem}"
    return Failure(message, code=ExitCode.FINDING, kind="OutputFailed")


def _drop_the_rest(stream: TextIO) -> None:
    """Let nothing more be written: Python flushes once more when it ends, which must not fail either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
