"""Which deliveries of a channel are unsettled, and how few frames acknowledge the others.

RabbitMQ takes one frame for a tag and all before it. That may be said only if everything before it was
settled; what was settled out of turn is acknowledged by itself. Pure: tags in, frames out.
"""

from __future__ import annotations

from collections import OrderedDict

from tidewheel.broker.rabbitmq.frames import acknowledgement, rejection


class Unsettled:
    """The tags of one channel, in the order of delivery, and those whose acknowledgement was not sent yet."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._open: OrderedDict[int, None] = OrderedDict()
        self._acknowledged: list[int] = []

    @property
    def outstanding(self) -> int:
        """How many the broker counts as unsettled, once it has read all that was sent."""
        return len(self._open) + len(self._acknowledged)

    def deliver(self, tag: int) -> None:
        """Note that *tag* was delivered."""
        self._open[tag] = None

    def acknowledge(self, tag: int) -> bool:
        """Note that *tag* is done with; true if it is the first whose frame has to be sent."""
        del self._open[tag]
        self._acknowledged.append(tag)
        return len(self._acknowledged) == 1

    def reject(self, tag: int, *, requeue: bool) -> bytes:
        """Return the frame that gives *tag* back; send it before any that ``take_frames`` returns later."""
        del self._open[tag]
        return rejection(self._channel, tag, requeue=requeue)

    def take_frames(self) -> bytes:
        """Return the frames for all that was acknowledged since the last time."""
        tags, self._acknowledged = sorted(self._acknowledged), []
        first_open = next(iter(self._open), None)
        together = [tag for tag in tags if first_open is None or tag < first_open]
        frames = [acknowledgement(self._channel, tag, multiple=False) for tag in tags[len(together) :]]
        if together:
            frames.insert(0, acknowledgement(self._channel, together[-1], multiple=len(together) > 1))
        return b"".join(frames)

    def give_back(self) -> bytes:
        """Return the frames that give back all that is in somebody's hands, first things first."""
        return b"".join(self.reject(tag, requeue=True) for tag in list(self._open))
