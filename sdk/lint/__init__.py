"""Static determinism check of a workflow: what would not replay, found before it runs.

The runtime guards refuse what they can patch; this finds what they cannot, such as
``datetime.now()`` or ``from time import time``. It reads the workflow's own source and
not the functions it calls, and it may be wrong: a line with ``# tidewheel: ignore`` or
``# tidewheel: ignore[rule]`` is skipped. Code that runs outside replay, in tasks and in
what is passed to ``ctx.run``, may do as it likes.
"""

from tidewheel.sdk.lint.report import Finding
from tidewheel.sdk.lint.visitor import lint

__all__ = ["Finding", "lint"]
