"""What makes a start request one of its kind: the contract's six names for it.

Whoever starts runs for tenants, projects and plans names each request so. Two requests with the same six
names are one: the second finds the run of the first.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from tidewheel.journal.errors import InvalidRequest

#: Of each name, in characters.
NAME_MAX: Final = 200


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A start request; all six names together are its own."""

    tenant_id: str
    project_id: str
    environment_id: str
    plan_id: str
    plan_version: str
    run_request_id: str

    @property
    def idempotency_key(self) -> str:
        """The SHA-256 of the names, joined by ``|``, in lower-case hex; raises ``InvalidRequest``."""
        names = [_checked(getattr(self, field), field) for field in self.__struct_fields__]
        return hashlib.sha256("|".join(names).encode()).hexdigest()


def _checked(name: str, field: str) -> str:
    """Return *name* if it may be one: a ``|`` in it would make two requests look alike."""
    is_name = isinstance(name, str) and 1 <= len(name) <= NAME_MAX
    if not is_name or "|" in name or not name.isprintable():
        shown = repr(name)[:NAME_MAX]
        raise InvalidRequest(
            f"{field} {shown} is not allowed: use 1 to {NAME_MAX} printable characters, and no |"
        )
    return name


def key_of(request: RunRequest | None, idempotency_key: str | None) -> str | None:
    """Return the key of a start that was given a *request*, a key, or neither; both are refused."""
    if request is None:
        return idempotency_key
    if idempotency_key is not None:
        raise InvalidRequest("a start has a request or an idempotency_key, not both: leave one out")
    return request.idempotency_key
