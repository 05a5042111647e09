"""What the ``tidewheel`` command returns to the shell: one table for all commands."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """How a command ended; scripts rely on the numbers."""

    #: It did what was asked, and found nothing wrong.
    OK = 0
    #: It did what was asked, and the answer is bad: a breach, a violation, a failed or cancelled run.
    FINDING = 1
    #: The command line or its input is wrong.
    INVALID = 2
    #: A file, app, workflow or run that was named does not exist.
    NOT_FOUND = 3
    #: The store or the broker cannot be reached.
    UNREACHABLE = 4
    #: It was refused: a conflict, or too much to do.
    REFUSED = 5
    #: Somebody pressed Ctrl-C.
    INTERRUPTED = 130
