"""What became of publications, for those who want all of them taken."""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.broker.errors import BrokerUnavailable, Unroutable
from tidewheel.broker.message import Publication, address
from tidewheel.broker.protocol import Untaken


def check_taken(publications: Sequence[Publication], answers: Sequence[Untaken | None], broker: str) -> None:
    """Raise ``BrokerUnavailable`` if *broker* refused any, ``Unroutable`` if no queue takes some."""
    if not any(answers):
        return
    refused = sum(answer == "refused" for answer in answers)
    if refused:
        raise BrokerUnavailable(
            f"{broker} refused {refused} of {len(answers)} messages: a queue is full, or has too few members"
        )
    raise Unroutable(
        [address(one) for one, answer in zip(publications, answers, strict=True) if answer is not None]
    )
