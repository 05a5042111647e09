"""Chance for ``ctx.random()`` and ``ctx.uuid()``: unguessable, and drawn without a system call.

Workflow code runs while ``os.urandom`` is refused, so the secret is drawn once, before.
"""

from __future__ import annotations

import hashlib
import os
import uuid


class SecureEntropy:
    """A keyed hash of a counter."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = os.urandom(32) if secret is None else secret
        self._count = 0
        self._prefix = hashlib.blake2b(b"token", key=self._secret, digest_size=8).digest()

    def token(self) -> bytes:
        """Sixteen bytes that nobody else has; they need not be hard to guess, and are cheap."""
        self._count += 1
        return self._prefix + self._count.to_bytes(8, "big")

    def random(self) -> float:
        """A float in [0, 1)."""
        return int.from_bytes(self.bytes()[:7], "big") / (1 << 56)

    def uuid(self) -> str:
        """A version 4 UUID."""
        return str(uuid.UUID(bytes=self.bytes(), version=4))

    def bytes(self) -> bytes:
        """Sixteen bytes."""
        self._count += 1
        return hashlib.blake2b(self._count.to_bytes(8, "big"), key=self._secret, digest_size=16).digest()
