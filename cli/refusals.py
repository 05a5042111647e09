"""What an error of the library means to the shell: one table from its class to an exit code."""

from __future__ import annotations

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.journal.errors import TidewheelError
from tidewheel.sdk.errors import AlreadyResolved, NotFound, Overloaded, SignalRejected
from tidewheel.store.errors import CommitUnknown, SchemaMismatch, StoreUnavailable, Unreadable

_UNREACHABLE_ADVICE = "see `tidewheel doctor`; --store and TIDEWHEEL_STORE say where the store is"

#: The first class that fits decides; what is not here is invalid input.
CODES: tuple[tuple[type[TidewheelError], ExitCode, str], ...] = (
    (NotFound, ExitCode.NOT_FOUND, ""),
    (SignalRejected, ExitCode.REFUSED, ""),
    (AlreadyResolved, ExitCode.REFUSED, ""),
    (Overloaded, ExitCode.REFUSED, ""),
    (SchemaMismatch, ExitCode.UNREACHABLE, ""),
    (StoreUnavailable, ExitCode.UNREACHABLE, _UNREACHABLE_ADVICE),
    (CommitUnknown, ExitCode.UNREACHABLE, ""),
    (BrokerUnavailable, ExitCode.UNREACHABLE, "--broker and TIDEWHEEL_BROKER say where the broker is"),
    (Unreadable, ExitCode.FINDING, "see `tidewheel journal verify` and `tidewheel doctor --deep`"),
)


def failure_of(error: TidewheelError) -> Failure:
    """Return *error* as the command reports it."""
    for kind, code, advice in CODES:
        if isinstance(error, kind):
            return Failure(str(error), code=code, kind=type(error).__name__, advice=advice)
    return Failure.invalid(str(error))
