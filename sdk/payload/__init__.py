"""Typed payloads: what goes into a journal and comes out of it. JSON only, never pickle.

Journals are read by people and by other versions of the code, so a payload is plain
JSON and the types are the reader's. What JSON cannot hold exactly is refused by
`encode`, with its path; what does not fit the declared type is refused by `decode`.
Everything a durable call passes or returns goes through both, also when nothing
failed: live code must see what a replay will see.

| Python | JSON |
|---|---|
| dataclass, ``msgspec.Struct``, pydantic model, ``TypedDict`` | object |
| ``dict``, keys being text, whole numbers, UUIDs, dates or enums | object, keys as text |
| ``list``, ``tuple``, ``NamedTuple`` | list |
| ``set``, ``frozenset`` | list, sorted by `canonical` |
| ``Enum`` | its value |
| ``datetime``, ``date``, ``time``, ``timedelta`` | ISO 8601; naive ones stay naive |
| ``UUID``, ``Decimal`` | text |
| ``bytes``, ``bytearray`` | base64 text |
"""

from __future__ import annotations

from tidewheel.journal.events import Json
from tidewheel.sdk.payload.args import Hints, decode_args, encode_args, signature_hints
from tidewheel.sdk.payload.decoding import IMMUTABLE, decode
from tidewheel.sdk.payload.encoding import canonical, encode
from tidewheel.sdk.payload.refusal import DEPTH_MAX, PayloadError

__all__ = [
    "DEPTH_MAX",
    "IMMUTABLE",
    "Hints",
    "Json",
    "PayloadError",
    "canonical",
    "decode",
    "decode_args",
    "encode",
    "encode_args",
    "signature_hints",
]
