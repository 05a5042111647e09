"""When a failed attempt is tried again: a pure function of policy and attempt.

The policy is journaled with the step and jitter comes from the caller, so one
journal always gives one schedule. Nothing here reads a clock.
"""

from __future__ import annotations

import msgspec

#: Doubling a second 40 times passes any real ``max_delay``; the cap keeps floats finite.
EXPONENT_MAX = 40


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``InvokeScheduled`` records of how its step is retried; durations in seconds."""

    max_attempts: int
    initial: float = 1.0
    backoff: float = 2.0
    max_delay: float = 60.0
    jitter: float = 0.5
    non_retryable: tuple[str, ...] = ()
    deadline: float | None = None


#: One attempt and no more.
ONCE = RetryPolicy(max_attempts=1)


def retry_delay(
    policy: RetryPolicy,
    *,
    attempt: int,
    error_type: str,
    retryable: bool,
    elapsed: float,
    jitter: float,
) -> float | None:
    """Return the seconds to wait after failed *attempt*, or None to give up.

    *elapsed* is in seconds since the step was scheduled: a retry that would start
    after the policy's deadline is not made. *jitter* in [0, 1) comes from the caller.
    """
    assert attempt >= 1
    assert 0.0 <= jitter < 1.0

    if not retryable or attempt >= policy.max_attempts or error_type in policy.non_retryable:
        return None
    grown = policy.initial * policy.backoff ** min(attempt - 1, EXPONENT_MAX)
    delay = min(grown, policy.max_delay) * (1.0 - policy.jitter * jitter)
    if policy.deadline is not None and elapsed + delay > policy.deadline:
        return None
    return delay
