"""A user's mistake, on its way to standard error."""

from __future__ import annotations

from tidewheel.cli.exit_codes import ExitCode


class Failure(Exception):
    """The command cannot do what was asked; *advice* says what to do about it."""

    def __init__(self, message: str, *, code: ExitCode, kind: str, advice: str = "", trace: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        #: ``error.type`` of the JSON form.
        self.kind = kind
        self.advice = advice
        #: The traceback of an error in the user's own module.
        self.trace = trace

    @classmethod
    def invalid(cls, message: str, advice: str = "") -> Failure:
        """The command line or its input is wrong."""
        return cls(message, code=ExitCode.INVALID, kind="InvalidRequest", advice=advice)

    @classmethod
    def not_found(cls, message: str, advice: str = "") -> Failure:
        """What was named does not exist."""
        return cls(message, code=ExitCode.NOT_FOUND, kind="NotFound", advice=advice)

    @classmethod
    def usage(cls, message: str, command: str) -> Failure:
        """The options of *command* do not fit together."""
        return cls(message, code=ExitCode.INVALID, kind="UsageError", advice=f"see `{command} --help`")

    @classmethod
    def refused(cls, message: str, advice: str = "") -> Failure:
        """What is there does not allow it."""
        return cls(message, code=ExitCode.REFUSED, kind="Refused", advice=advice)
