r"""An AI agent: a model that thinks in turns, tools that act, and a person who may say no.

Shows a loop of model calls and tool calls as durable steps: a turn that is in the journal is never paid
for again, whatever crashes. Tools of one turn run in parallel, their failures are told to the model,
a dangerous one waits for a person, and steps and tokens have a limit. Try it, in two terminals::

    tidewheel dev examples/agent.py:app

    tidewheel run start agent --run-id trip --input '["plan a day in Oslo"]'
    tidewheel run show trip                               # what it did, and what it waits for
    tidewheel run resolve trip confirm-2-1 --value true
    tidewheel run watch trip

The model here is a script that always plans the same day. Yours is another ``Model``: put its client
where ``MODEL`` is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from tidewheel import App, Context, InvalidRequest, Retry, StepFailed

app = App("agent")

TURNS_MAX = 10
TOKENS_MAX = 10_000
CONFIRM_WITHIN = timedelta(hours=12)


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model wants to use. Its arguments are whatever the model came up with."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Message:
    """One thing that was said: by the user, the model or a tool."""

    role: str
    text: str


@dataclass(frozen=True)
class Turn:
    """What the model answers: something to say, tools to use first, and what it cost."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    tokens: int = 0


@dataclass(frozen=True)
class Answer:
    """What came out, and what it cost."""

    text: str
    turns: int
    tokens: int


# The model.


class Model(Protocol):
    """Whatever can go on with a conversation."""

    async def reply(self, conversation: list[Message]) -> Turn:
        """Return the next turn."""


class ScriptedModel:
    """Plans a day in three turns: look around, book a table, sum up."""

    async def reply(self, conversation: list[Message]) -> Turn:
        """Return the next turn, told by how many the model had before."""
        heard = [message.text for message in conversation if message.role == "tool"]
        turns = sum(message.role == "model" for message in conversation)
        tokens = 100 + sum(len(message.text) for message in conversation)
        if turns == 0:
            calls = (ToolCall("weather", {"city": "Oslo"}), ToolCall("restaurants", {"city": "Oslo"}))
            return Turn("Let me look around.", calls, tokens)
        if turns == 1:
            call = ToolCall("book_table", {"place": "the harbour kitchen", "people": 2})
            return Turn("I would book a table.", (call,), tokens)
        return Turn(f"The plan: {'; '.join(heard)}.", tokens=tokens)


#: A real client goes here: anything with a ``reply``.
MODEL: Model = ScriptedModel()


@app.task(retry=Retry(max_attempts=5, initial=2), timeout=120)
async def think(conversation: list[Message]) -> Turn:
    """Ask the model. Its answer is journaled, so each turn is asked for and paid for once."""
    return await MODEL.reply(conversation)


# The tools: tasks with one argument. What the model made up is checked against its type.


@dataclass(frozen=True)
class City:
    """Where to look."""

    city: str


@dataclass(frozen=True)
class Booking:
    """A table for some people."""

    place: str
    people: int


@app.task
async def weather(where: City) -> str:
    """Look up the weather."""
    return f"sunny in {where.city}"


@app.task
async def restaurants(where: City) -> str:
    """Find places to eat."""
    return f"the harbour kitchen is open in {where.city}"


@app.task
async def book_table(booking: Booking) -> str:
    """Book a table, which costs something if nobody comes."""
    return f"a table for {booking.people} at {booking.place}"


TOOLS: dict[str, Callable[..., Any]] = {tool.__name__: tool for tool in (weather, restaurants, book_table)}
DANGEROUS = {"book_table"}


# The loop.


@app.workflow
async def agent(ctx: Context, goal: str) -> Answer:
    """Let the model think and act until it has an answer, or has used up what it may."""
    conversation = [Message("user", goal)]
    tokens = 0
    for turns in range(1, TURNS_MAX + 1):
        turn = await ctx.invoke(think, conversation)
        tokens += turn.tokens
        remember(ctx, conversation, Message("model", turn.text))
        if not turn.calls:
            return Answer(turn.text, turns, tokens)
        if tokens >= TOKENS_MAX:
            return Answer(f"stopped: {tokens} of {TOKENS_MAX} tokens are spent", turns, tokens)
        calls = (use(ctx, call, f"{turns}-{place}") for place, call in enumerate(turn.calls, 1))
        for result in await asyncio.gather(*calls):
            remember(ctx, conversation, Message("tool", result))
    return Answer(f"stopped: no answer within {TURNS_MAX} turns", TURNS_MAX, tokens)


def remember(ctx: Context, conversation: list[Message], message: Message) -> None:
    """Go on with the conversation, and let people read it while the run goes on."""
    conversation.append(message)
    ctx.state[f"message {len(conversation)}"] = message


async def use(ctx: Context, call: ToolCall, number: str) -> str:
    """Use a tool; what goes wrong is told to the model, which may try something else."""
    tool = TOOLS.get(call.tool)
    if tool is None:
        return f"there is no tool {call.tool}"
    if call.tool in DANGEROUS and not await confirmed(ctx, call, f"confirm-{number}"):
        return f"{call.tool} was not allowed"
    try:
        return str(await ctx.invoke(tool, call.arguments))
    except (StepFailed, InvalidRequest) as problem:
        return f"{call.tool} failed: {problem}"


async def confirmed(ctx: Context, call: ToolCall, name: str) -> bool:
    """Ask a person, for this call and no other; anything but a yes in time is a no."""
    ctx.state[name] = call
    try:
        return await ctx.promise(name, into=bool, timeout=CONFIRM_WITHIN)
    except (TimeoutError, StepFailed, InvalidRequest):
        return False
    finally:
        del ctx.state[name]
