"""What can go wrong with a broker, by what the caller should do."""

from __future__ import annotations

from tidewheel.journal.errors import TidewheelError


class BrokerUnavailable(TidewheelError):
    """The broker cannot be reached or used now. Try again later; nothing is lost but time."""


class Unroutable(TidewheelError):
    """No queue takes these messages; the others of the same call were taken. Declare the queue first."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(f"no queue takes what was published to {', '.join(sorted(set(addresses)))}")
        self.addresses = addresses


class PoisonMessage(TidewheelError):
    """A message that cannot be understood. Delivering it again cannot help: it is a dead letter."""
