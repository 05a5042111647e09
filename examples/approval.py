r"""A request that a person decides: asked for, reminded of, and refused when nobody answers.

Shows a promise that somebody outside settles, waiting with reminders, and a deadline. The first answer
counts; a second one is told that it came too late. Try it, in two terminals::

    tidewheel dev examples/approval.py:app

    tidewheel run start approval --run-id laptop \
        --input '[{"what": "a laptop", "asked_by": "ops", "decided_by": "finance"}]'
    tidewheel run resolve laptop decision --value '{"approved": true, "why": "it is in the plan"}'
    tidewheel run watch laptop

``tidewheel run reject laptop decision "not this year"`` says no. With ``"remind_every": 5,
"give_up_after": 20`` in the input (seconds) you can watch it being reminded of and given up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidewheel import App, Context, InvalidRequest, Retry, StepFailed

app = App("approvals")

HOUR = 3600.0


@dataclass(frozen=True)
class Request:
    """What is asked for, and how long the wait may be, in seconds."""

    what: str
    asked_by: str
    decided_by: str
    remind_every: float = 8 * HOUR
    give_up_after: float = 72 * HOUR


@dataclass(frozen=True)
class Decision:
    """The answer: yes or no, and the reason."""

    approved: bool
    why: str


@app.task(retry=Retry(max_attempts=10))
def send_message(to: str, text: str) -> str:
    """Write to somebody; a mail or a chat would go here."""
    return f"to {to}: {text}"


@app.workflow
async def approval(ctx: Context, request: Request) -> Decision:
    """Ask, remind, and tell whoever asked what was decided."""
    decision = await decided(ctx, request)
    word = "approved" if decision.approved else "refused"
    await ctx.invoke(send_message, request.asked_by, f"{request.what} was {word}: {decision.why}")
    return decision


async def decided(ctx: Context, request: Request) -> Decision:
    """Return the decision; no answer in time is a no."""
    how = f"tidewheel run resolve {ctx.run_id} decision"
    await ctx.invoke(send_message, request.decided_by, f"please decide about {request.what}: {how}")
    # One promise for the whole wait: its deadline goes on while reminders come and go.
    decision = ctx.promise("decision", into=Decision, timeout=request.give_up_after)
    reminders = 0
    while True:
        await asyncio.wait([decision], timeout=request.remind_every)
        if decision.done():
            break
        reminders += 1
        ctx.state["reminders"] = reminders
        await ctx.invoke(send_message, request.decided_by, f"still waiting for you: {request.what}")
    try:
        return await decision
    except TimeoutError:
        return Decision(approved=False, why=f"nobody answered; reminders: {reminders}")
    except StepFailed as rejected:
        return Decision(approved=False, why=rejected.message)
    except InvalidRequest as unreadable:  # resolved with something that is no Decision
        return Decision(approved=False, why=str(unreadable))
