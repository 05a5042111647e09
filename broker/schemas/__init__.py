"""The written contract of the bus: a JSON Schema (draft 2020-12) for every body that others write or read.

One file for each kind of message, each complete in itself, so that any language can use it: nothing here is
needed to run. They use only what draft 07 has too, since AsyncAPI speaks that. What is written by us requires
every field that we write, and lets a later release write more; what others write is refused if it has a field
that no command has. Tests keep the files and the structs they describe together.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

import msgspec

#: What there are schemas of: the events and alerts that are published, the commands that are taken.
BODIES: Final = ("event", "alert", "start", "signal", "cancel")


def schema_of(body: str) -> dict[str, Any]:
    """Return the schema of *body*, one of ``BODIES``."""
    text = files("tidewheel.broker.schemas").joinpath(f"{body}.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Any])
