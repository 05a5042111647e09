"""A child process ends with its parent, however the parent ends: nothing is left behind by a kill.

The parent holds one end of a pipe that nobody writes to; when it is gone, the system closes it, and a
thread of the child notices, whatever the child's own code is doing. On Linux the kernel is asked to see to it
as well: it can end a child whose code does not let other threads run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading

#: The exit code of a process whose parent has gone; nobody is left to read it.
EXIT_ORPHANED = 1
_PR_SET_PDEATHSIG = 1


class Leash:
    """The parent's end. ``child_end`` is passed to the child, and let go with ``handed_over``."""

    def __init__(self) -> None:
        self.child_end, self._my_end = os.pipe()
        self._open = {self.child_end, self._my_end}

    def handed_over(self) -> None:
        """The child has its end: close ours of it."""
        self._close(self.child_end)

    def close(self) -> None:
        """Let go: a child that still lives ends now. May be called twice."""
        self._close(self.child_end)
        self._close(self._my_end)

    def _close(self, end: int) -> None:
        if end in self._open:
            self._open.discard(end)
            os.close(end)


def end_with_parent(child_end: int, parent: int) -> None:
    """End this process as soon as *parent* has ended. To be called first of all in the child."""
    # The children of this process have parents of their own.
    os.set_inheritable(child_end, False)  # noqa: FBT003 - it takes no keyword
    if sys.platform == "linux":
        # A kernel that refuses leaves it to the thread.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)
    threading.Thread(target=_watch, args=(child_end,), name="tidewheel-leash", daemon=True).start()


def _watch(child_end: int) -> None:
    with contextlib.suppress(OSError):
        os.read(child_end, 1)
    os._exit(EXIT_ORPHANED)
