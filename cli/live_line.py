"""One line on standard error that is written over again and again, where somebody looks.

It never touches standard output, and is gone when it is done: what follows starts on an empty line.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from tidewheel.cli import output
from tidewheel.cli.timeline.text import cut

#: Nobody reads faster than this.
PAUSE_S: Final = 0.1
_CLEAR: Final = "\r\x1b[2K"


class LiveLine:
    """Shows how something is going, if standard error is a terminal and it is *wanted*."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.is_shown = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._text = ""
        self._drawn_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw("")

    def show(self, text: str) -> None:
        """Show *text*, unless something was shown just now."""
        now = time.monotonic()
        if self.is_shown and now - self._drawn_at >= PAUSE_S:
            self._drawn_at = now
            self._draw(text)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Make room while something else is written, then come back."""
        text = self._text
        self._draw("")
        yield
        self._draw(text)

    def _draw(self, text: str) -> None:
        if not self.is_shown or (not text and not self._text):
            return
        self._text = text
        columns = shutil.get_terminal_size().columns
        with contextlib.suppress(OSError):  # the terminal may be gone
            output.draw(_CLEAR + cut(text, max(columns - 1, 1)))
