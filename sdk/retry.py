"""``Retry``: how a failed step is tried again, as authors write it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.retry import RetryPolicy
from tidewheel.sdk.durations import Duration, positive_seconds, seconds


@dataclass(frozen=True, slots=True)
class Retry:
    """A step's retry policy.

    After failed attempt ``n`` the next one waits ``initial * backoff ** (n - 1)`` seconds, at
    most ``max_delay``, shortened by a random part of up to ``jitter`` (a share of the delay).
    Errors in ``non_retryable`` (classes or class names) end the step at once. ``deadline`` is
    counted from when the step was scheduled: no attempt starts after it.
    """

    max_attempts: int = 3
    initial: Duration = 1.0
    backoff: float = 2.0
    max_delay: Duration = 60.0
    jitter: float = 0.5
    non_retryable: Iterable[type[BaseException] | str] = ()
    deadline: Duration | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense, where it was written."""
        if not isinstance(self.max_attempts, int) or self.max_attempts < 1:
            message = f"Retry(max_attempts={self.max_attempts!r}): at least 1 attempt is made"
            raise InvalidRequest(message)
        if not self.backoff >= 1.0:
            message = f"Retry(backoff={self.backoff!r}): delays grow, so backoff is 1.0 or more"
            raise InvalidRequest(message)
        if not 0.0 <= self.jitter <= 1.0:
            message = f"Retry(jitter={self.jitter!r}): jitter is a share of the delay, 0.0 to 1.0"
            raise InvalidRequest(message)
        for name in ("initial", "max_delay"):
            if seconds(getattr(self, name), f"Retry({name}=)") < 0:
                message = f"Retry({name}={getattr(self, name)!r}): a delay is 0 seconds or more"
                raise InvalidRequest(message)
        positive_seconds(self.deadline, "Retry(deadline=)")

    def policy(self) -> RetryPolicy:
        """The policy as it is journaled."""
        return RetryPolicy(
            max_attempts=self.max_attempts,
            initial=seconds(self.initial, "initial"),
            backoff=float(self.backoff),
            max_delay=seconds(self.max_delay, "max_delay"),
            jitter=float(self.jitter),
            non_retryable=tuple(one if isinstance(one, str) else one.__name__ for one in self.non_retryable),
            deadline=positive_seconds(self.deadline, "deadline"),
        )
