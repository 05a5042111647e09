"""What a projector can be told, with its defaults."""

from __future__ import annotations

from typing import Annotated

from tidewheel.sdk.settings import Key, Settings, Unit


class ProjectorConfig(Settings, frozen=True, kw_only=True):
    """How a projector behaves."""

    batch: Annotated[
        int,
        Key(
            "TIDEWHEEL_PROJECTOR_BATCH",
            "Events that share one write to the store.",
            least=1,
            most=10_000,
        ),
    ] = 500
    prefetch: Annotated[
        int,
        Key("TIDEWHEEL_PROJECTOR_PREFETCH", "Events in hand at a time, per shard.", least=1, most=10_000),
    ] = 500
    patience_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_PROJECTOR_PATIENCE",
            "How long an event waits for the one before it, until that is taken for lost.",
            Unit.SECONDS,
            least=0.0,
        ),
    ] = 0.5
    lag_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_PROJECTOR_LAG",
            "People are told when what is projected happened longer ago than this.",
            Unit.SECONDS,
            least=0.1,
        ),
    ] = 5.0
    lease_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_PROJECTOR_LEASE",
            "Others take over the share of a projector that was silent for so long.",
            Unit.SECONDS,
            least=0.3,
        ),
    ] = 5.0
    look_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_PROJECTOR_LOOK",
            "How often it looks for runs whose events never came.",
            Unit.SECONDS,
            least=0.1,
        ),
    ] = 30.0
    quiet_s: Annotated[
        float,
        Key(
            "TIDEWHEEL_PROJECTOR_QUIET",
            "A run counts for that look when nothing was written to it for so long.",
            Unit.SECONDS,
            least=0.0,
        ),
    ] = 30.0
