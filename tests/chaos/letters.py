"""The app of the bus storm: small runs that publish from four to nine events, over several commits.

A run is a number, and what comes of it follows from the number: whoever checks works it out without the
product. Some sleep on their way, and some fail at their end.
"""

from __future__ import annotations

from tidewheel import App, Context, Retry

app = App("post")

#: Workers die all the time: a step must not run out of attempts because of it.
OFTEN = Retry(max_attempts=1_000, initial=0.01, max_delay=0.1, jitter=0.0)

#: One run in so many sleeps before its last step, and one in so many fails after it.
SLEEPS_EVERY, FAILS_EVERY = 10, 25
#: How long it sleeps.
NAP_S = 0.05


def run_id_of(number: int) -> str:
    """Return the name of the run with this number."""
    return f"letter-{number:06d}"


def number_of(run_id: str) -> int:
    """Return the number of a run."""
    return int(run_id.rpartition("-")[2])


def legs_of(number: int) -> int:
    """Return how many steps it takes to carry a letter."""
    return number % 3 + 1


def fails(number: int) -> bool:
    """Tell whether the run is to fail."""
    return number % FAILS_EVERY == 0


def result_of(number: int) -> int:
    """Return what a run comes to that does not fail."""
    return sum(number + leg for leg in range(legs_of(number)))


def published_by(number: int) -> int:
    """Return how many public events the run has: start and end, and two for each step."""
    return 2 + 2 * (legs_of(number) + fails(number))


class Lost(Exception):
    """What a letter ends with that nobody finds again."""


@app.task(retry=OFTEN)
async def carry(number: int, leg: int) -> int:
    """Carry it one leg."""
    return number + leg


@app.task(retry=Retry(max_attempts=1))
async def lose(number: int) -> None:
    """Lose it."""
    raise Lost(f"letter {number}")


@app.workflow
async def letter(ctx: Context, number: int) -> int:
    """One leg after the other."""
    total = 0
    last = legs_of(number) - 1
    for leg in range(legs_of(number)):
        if leg == last and number % SLEEPS_EVERY == 0:
            await ctx.sleep(NAP_S)
        total += await ctx.invoke(carry, number, leg)
    if fails(number):
        await ctx.invoke(lose, number)
    return total
