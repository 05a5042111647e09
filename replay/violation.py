"""What is said when the code and the journal disagree, and how the code is stopped.

A violation is a value, not an exception: user code could swallow an exception,
so the execution keeps the violation and looks at it after every step. What the
code itself meets is ``Halted``, which ``except Exception`` does not catch.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tidewheel.journal.events import Error

#: ``error.type`` of a run that ended because its code no longer fits its journal.
DETERMINISM_VIOLATION = "DETERMINISM_VIOLATION"
#: The "command" of a run that ends otherwise than its journal says.
RETURN = "Return"
#: A message quotes at most this much of a value.
SHOWN_MAX = 200


class Violation(msgspec.Struct, frozen=True):
    """The command that differs, in which field, what the journal has and what the code asked."""

    command: str
    field: str
    journal: Any
    code: Any
    hint: str = ""

    @property
    def message(self) -> str:
        """One line for people: ``Task(3): journal has 'charge_card', code asked for 'send_receipt'``."""
        if self.command == RETURN:
            return f"the journal ended with {_shown(self.journal)}, the code with {_shown(self.code)}"
        had = "nothing" if self.journal is None else f"{_shown(self.journal)}"
        asked = "never asked for it" if self.code is None else f"asked for {_shown(self.code)}"
        where = "" if self.field in ("function_name", "name", "signal_name") else f" {self.field}"
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.command}{where}: journal has {had}, code {asked}{hint}"

    def to_json(self) -> dict[str, Any]:
        """The violation as ``tidewheel replay`` prints it."""
        shown = {"command": self.command, "field": self.field, "journal": self.journal, "code": self.code}
        return {**shown, "hint": self.hint} if self.hint else shown

    def as_error(self) -> Error:
        """The error a violated run ends with; never retried."""
        return Error(
            type=DETERMINISM_VIOLATION, message=self.message, retryable=False, details=self.to_json()
        )


class Halted(BaseException):
    """This run's code is over: it broke determinism or its memory was given up.

    Do not catch it: nothing the code does from here on is recorded.
    """


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    text = json.dumps(value)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."
