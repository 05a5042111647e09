"""The root of every error Tidewheel raises, and the one for bad input.

They live at the bottom layer so that every folder can raise them; the rest of
the tree is in ``sdk.errors``.
"""

from __future__ import annotations


class TidewheelError(Exception):
    """Any error of Tidewheel's own. Catch this to catch them all."""


class InvalidRequest(TidewheelError):
    """The caller passed something that can never work. Fix the call; retrying cannot help."""
