"""A broker that tells what it carries: how many messages go where, how long that takes, the relay's spans.

Only where telemetry is on: else the broker is used as it is. Messages between our own processes carry the
context that whoever made them put there. Events of the bus carry two: in the headers of CloudEvents where
they happened, and beside them the span of the relay that published them, which links to all of those.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from tidewheel.broker.message import Publication
from tidewheel.broker.protocol import Broker, Deliveries, Delivery, Untaken
from tidewheel.broker.topology import EVENTS, destination
from tidewheel.telemetry import names, switch
from tidewheel.telemetry.context import CLOUDEVENTS, TraceContext, headers_of, of_headers

if TYPE_CHECKING:
    from tidewheel.telemetry.recorder import Recorder
    from tidewheel.telemetry.spans import OpenSpan


class WatchedBroker:
    """*broker*, telling *recorder*; everything else is the broker's own."""

    def __init__(self, broker: Broker, recorder: Recorder) -> None:
        self._broker = broker
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def offer(self, publications: Sequence[Publication]) -> list[Untaken | None]:
        """Publish, and tell of it."""
        span = None
        if publications and publications[0].exchange == EVENTS:
            span = self._begin(publications)
            headers = headers_of(span.trace)
            publications = [_with(publication, headers) for publication in publications]
        began_s = time.perf_counter()
        try:
            answers = await self._broker.offer(publications)
        except BaseException as problem:
            self._tell(publications, began_s, type(problem).__name__, span)
            raise
        self._tell(publications, began_s, None, span, answers)
        return answers

    async def publish(self, publications: Sequence[Publication]) -> None:
        """Publish, and tell of it."""
        began_s = time.perf_counter()
        try:
            await self._broker.publish(publications)
        except BaseException as problem:
            self._tell(publications, began_s, type(problem).__name__, None)
            raise
        self._tell(publications, began_s, None, None)

    @asynccontextmanager
    async def consume(self, queue: str, *, prefetch: int) -> AsyncIterator[Deliveries]:
        """Receive, and count it."""
        async with self._broker.consume(queue, prefetch=prefetch) as deliveries:
            yield _Counted(deliveries, queue, self._recorder)

    def _begin(self, publications: Sequence[Publication]) -> OpenSpan:
        found = [of_headers(publication.message.headers, CLOUDEVENTS) for publication in publications]
        links: dict[TraceContext, None] = dict.fromkeys(trace for trace in found if trace is not None)
        return self._recorder.spans.begin(
            names.PUBLISH,
            links=links,
            attributes=self._attributes(EVENTS) | {names.BATCH: len(publications)},
        )

    def _attributes(self, where: str) -> dict[str, str]:
        return {
            names.SYSTEM: self._recorder.system,
            names.OPERATION: "send",
            names.OPERATION_TYPE: "send",
            names.DESTINATION: where,
        }

    def _tell(
        self,
        publications: Sequence[Publication],
        began_s: float,
        error: str | None,
        span: OpenSpan | None,
        answers: Sequence[Untaken | None] = (),
    ) -> None:
        meters, took_s = self._recorder.meters, time.perf_counter() - began_s
        ways = [destination(one.routing_key, one.exchange) for one in publications]
        outcomes: Sequence[str | None] = answers or [error] * len(ways)
        told = Counter(zip(ways, outcomes, strict=True))
        for (where, problem), count in told.items():
            attributes = self._attributes(where)
            if problem is not None:
                attributes[names.ERROR_TYPE] = problem
            meters.count(names.SENT, attributes, count)
        for where in dict.fromkeys(ways):
            attributes = self._attributes(where)
            if error is not None:
                attributes[names.ERROR_TYPE] = error
            meters.record(names.OPERATION_DURATION, attributes, took_s)
        if span is not None:
            span.end(error)


class _Counted:
    """Deliveries of one queue, counted as they come."""

    def __init__(self, deliveries: Deliveries, queue: str, recorder: Recorder) -> None:
        self._deliveries = deliveries
        self._meters = recorder.meters
        self._attributes = {names.SYSTEM: recorder.system, names.DESTINATION: destination(queue)}

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        delivery = await anext(self._deliveries)
        self._meters.count(names.CONSUMED, self._attributes)
        return delivery

    async def stop(self) -> None:
        """Fetch no more."""
        await self._deliveries.stop()


def _with(publication: Publication, headers: dict[str, str]) -> Publication:
    message = publication.message
    return replace(publication, message=replace(message, headers={**message.headers, **headers}))


def watched(broker: Broker, system: str) -> Broker:
    """Return *broker*, telling what it carries over *system* if telemetry is on."""
    recorder = switch.active
    if recorder is None:
        return broker
    recorder.system = system
    return cast("Broker", WatchedBroker(broker, recorder))
