"""The postman: what cannot be delivered is told where it matters."""

from __future__ import annotations

import logging

import pytest

from tidewheel.broker.memory import MemoryBroker
from tidewheel.broker.message import Publication
from tidewheel.broker.topology import reply_queue, work_queue
from tidewheel.broker.work_items import RunHint, to_workers
from tidewheel.workers.postman import Postman


@pytest.mark.parametrize(
    ("queue", "level"),
    [(reply_queue("c-1"), logging.DEBUG), (work_queue("default", "mail"), logging.INFO)],
)
async def test_a_client_that_has_left_is_nothing_to_tell_of(
    queue: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queue is gone, as it should be; a work queue that is missing is another matter."""
    caplog.set_level(logging.DEBUG, "tidewheel.workers")
    message = to_workers(RunHint(namespace="default", run_id="r-1"), "mail").message
    postman = Postman(MemoryBroker().connect())

    postman.send([Publication(routing_key=queue, message=message)])
    await postman.idle()

    assert [record.levelno for record in caplog.records if queue in record.getMessage()] == [level]
    assert postman.dropped == 1
