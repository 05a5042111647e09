"""What a relay can be told, with its defaults."""

from __future__ import annotations

from typing import Annotated

from tidewheel.sdk.settings import Key, Settings, Unit


class RelayConfig(Settings, frozen=True, kw_only=True):
    """How a relay publishes."""

    poll_s: Annotated[
        float,
        Key("TIDEWHEEL_RELAY_POLL", "The longest it sleeps between two looks.", Unit.SECONDS, least=0.01),
    ] = 0.1
    batch: Annotated[
        int, Key("TIDEWHEEL_RELAY_BATCH", "Runs whose events it has in hand at a time.", least=1, most=500)
    ] = 256
    lease_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_RELAY_LEASE",
            "How long others leave alone what a relay has in hand, if nothing is heard of it.",
            Unit.SECONDS,
            least=1.0,
        ),
    ] = 30.0
    attempts: Annotated[
        int,
        Key(
            "TIDEWHEEL_RELAY_ATTEMPTS",
            "Events that the bus refused so often become a dead letter.",
            least=1,
            most=1_000,
        ),
    ] = 10
    retry_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_RELAY_RETRY",
            "The first pause after a refusal; each further one is twice as long.",
            Unit.SECONDS,
            least=0.01,
        ),
    ] = 1.0
    retry_max_s: Annotated[
        float,
        Key("TIDEWHEEL_RELAY_RETRY_MAX", "The longest pause after a refusal.", Unit.SECONDS, least=0.01),
    ] = 300.0
    needs_queue: Annotated[
        bool,
        Key(
            "TIDEWHEEL_RELAY_NEEDS_QUEUE",
            "An event that no queue takes counts as refused; else it is told to nobody, and done with.",
        ),
    ] = False
