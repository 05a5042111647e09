"""Start requests by the contract's six names: one request is one run."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec
import pytest

from tests.unit.workers.house import House
from tests.unit.workers.postbox import Postbox
from tidewheel import App, Context, InvalidRequest, RunRequest

app = App("requests")
REQUEST = RunRequest(
    tenant_id="acme",
    project_id="shop",
    environment_id="prod",
    plan_id="fulfil",
    plan_version="3",
    run_request_id="r-1",
)
FIELDS = RunRequest.__struct_fields__


@app.workflow
async def fulfil(ctx: Context, number: int) -> int:
    """Return what was given."""
    return number


def test_the_key_is_the_contracts() -> None:
    """SHA-256 of the names in their order, joined by one ``|``, in lower-case hex."""
    expected = hashlib.sha256(b"acme|shop|prod|fulfil|3|r-1").hexdigest()

    assert REQUEST.idempotency_key == expected


@pytest.mark.parametrize("field", FIELDS)
def test_each_name_counts(field: str) -> None:
    """Another one makes another request."""
    other = msgspec.structs.replace(REQUEST, **{field: "other"})

    assert other.idempotency_key != REQUEST.idempotency_key


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", ["", "a|b", "a\0b", "x" * 201, 7])
def test_what_is_no_name_is_refused(field: str, name: Any) -> None:
    """With a ``|`` in them two requests would look alike."""
    request = msgspec.structs.replace(REQUEST, **{field: name})

    with pytest.raises(InvalidRequest, match=f"{field} .* is not allowed"):
        _ = request.idempotency_key


async def test_a_request_that_comes_again_is_the_same_run(house: House) -> None:
    """With another input the answer says so."""
    client = await house.client()
    first = await client.start(fulfil, 1, request=REQUEST)

    same = await client.start(fulfil, 1, request=REQUEST)
    other = await client.start(fulfil, 2, request=REQUEST)
    next_one = await client.start(fulfil, 2, request=msgspec.structs.replace(REQUEST, run_request_id="r-2"))

    assert [(one.run_id == first.run_id, one.existed, one.mismatch) for one in (same, other, next_one)] == [
        (True, True, False),
        (True, True, True),
        (False, False, False),
    ]


async def test_a_request_takes_no_other_key(house: House) -> None:
    """It is one."""
    client = await house.client()

    with pytest.raises(InvalidRequest, match="not both"):
        await client.start(fulfil, 1, request=REQUEST, idempotency_key="k")


async def test_a_request_that_is_published_again_is_the_same_run(house: House, postbox: Postbox) -> None:
    """Also where a client has started it; with another input the command is a dead letter."""
    await house.worker(app)
    fields = msgspec.to_builtins(REQUEST)
    for number in (1, 1, 2):
        await postbox.start("fulfil", number, request=fields)
        await house.until(lambda: bool(house.store.rows.runs))
    await asyncio.sleep(1)
    client = await house.client()

    again = await client.start(fulfil, 1, request=REQUEST)

    (told,) = await postbox.reasons()
    assert again.existed
    assert await postbox.runs() == {again.run_id: "COMPLETED"}
    assert "is there already, with another workflow or input" in told
