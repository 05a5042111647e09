"""The agent: it thinks, acts and asks, and never pays for the same turn twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from examples import agent as example
from examples.agent import Answer, Message, Model, ScriptedModel, ToolCall, Turn, agent, app
from tests.examples.embedded import RESULT_WITHIN, embedded, until_it_waits
from tidewheel.journal.events import InvokeScheduled
from tidewheel.testing import Environment, crash_everywhere

GOAL = "plan a day in Oslo"
CONFIRM = "confirm-2-1"
BOOKED = "a table for 2 at the harbour kitchen"


class Recorded:
    """A model that remembers what it was asked: as many messages as the conversation had."""

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self.asked: list[int] = []
        self._turns = list(turns)
        self._model: Model = ScriptedModel()

    async def reply(self, conversation: list[Message]) -> Turn:
        """Answer as told, the last turn for ever, or as the scripted model would."""
        self.asked.append(len(conversation))
        if not self._turns:
            return await self._model.reply(conversation)
        return self._turns[min(len(self.asked), len(self._turns)) - 1]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The scripted model, recorded."""
    return use(Recorded(), monkeypatch)


def use(model: Recorded, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Put *model* where a real client would be."""
    monkeypatch.setattr(example, "MODEL", model)
    return model


async def test_the_agent_looks_around_asks_and_books(model: Recorded) -> None:
    """Three turns: two tools at once, one that a person confirmed, and the answer."""
    async with Environment(app) as env:
        run = await env.client.start(agent, GOAL)
        env.after(60, run.resolve, CONFIRM, True)

        answer = await run.result()

        assert answer.turns == 3
        assert BOOKED in answer.text
        said = await run.state()
        assert [said[f"message {place}"]["role"] for place in range(2, 8)] == [
            "model",
            "tool",
            "tool",
            "model",
            "tool",
            "model",
        ]  # fmt: skip - a conversation reads best on one line
    assert model.asked == [1, 4, 6]


async def test_tools_of_one_turn_run_at_the_same_time() -> None:
    """Two tools that take a minute each take a minute together."""
    async with Environment(app) as env:
        env.fake(example.weather, takes=60)
        env.fake(example.restaurants, takes=60)
        began = env.now
        run = await env.client.start(agent, GOAL)
        env.after(90, run.resolve, CONFIRM, True)

        await run.result()

        assert env.now - began == timedelta(seconds=90)


@pytest.mark.parametrize("answer", [False, "yes", None, "silence"])
async def test_anything_but_a_yes_books_nothing(answer: object) -> None:
    """A no, an answer that is no bool, and no answer at all are all a no."""
    async with Environment(app) as env:
        run = await env.client.start(agent, GOAL)
        if answer != "silence":
            env.after(60, run.resolve, CONFIRM, answer)

        result = await run.result()

        steps = [e.event.function_name for e in await run.journal() if isinstance(e.event, InvokeScheduled)]
        assert "book_table was not allowed" in result.text
        assert "book_table" not in steps


async def test_a_yes_is_for_one_call_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tool, wanted again, needs another yes."""
    book = ToolCall("book_table", {"place": "the harbour kitchen", "people": 2})
    use(Recorded([Turn("one", (book, book)), Turn("two", (book,)), Turn("done")]), monkeypatch)
    async with Environment(app) as env:
        run = await env.client.start(agent, GOAL)
        await run.resolve("confirm-1-1", value=True)
        waiting = await run.state()
        await run.resolve("confirm-1-2", value=False)
        await run.resolve("confirm-2-1", value=False)

        await run.result()

        said = await run.state()
    assert "confirm-1-2" in waiting
    assert [said[f"message {place}"]["text"] for place in (3, 4, 6)] == [
        BOOKED,
        "book_table was not allowed",
        "book_table was not allowed",
    ]


async def test_what_goes_wrong_with_a_tool_is_told_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown tools, made-up arguments and failures are things to react to, not the end."""
    calls = (
        ToolCall("teleport", {}),
        ToolCall("weather", {"town": 7}),
        ToolCall("restaurants", {"city": "Oslo"}),
    )
    use(Recorded([Turn("try", calls), Turn("sorry")]), monkeypatch)
    async with Environment(app) as env:
        env.fake(example.restaurants, raises=ConnectionError("no answer"))
        run = await env.client.start(agent, GOAL)

        answer = await run.result()

        said = await run.state()
    assert answer.text == "sorry"
    assert said["message 3"]["text"] == "there is no tool teleport"
    assert "the field 'city' is missing" in said["message 4"]["text"]
    assert said["message 5"]["text"] == "restaurants failed: restaurants: ConnectionError: no answer"


async def test_a_model_that_never_comes_to_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many turns there is an answer, if not the one that was hoped for."""
    model = use(Recorded([Turn("again", (ToolCall("weather", {"city": "Oslo"}),), tokens=1)]), monkeypatch)
    async with Environment(app) as env:
        run = await env.client.start(agent, GOAL)

        answer = await run.result()

    assert answer == Answer("stopped: no answer within 10 turns", turns=10, tokens=10)
    assert len(model.asked) == 10


async def test_a_budget_that_is_spent_ends_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more is done once the tokens are gone, not even the tools of that turn."""
    costly = Turn("again", (ToolCall("weather", {"city": "Oslo"}),), tokens=6_000)
    model = use(Recorded([costly]), monkeypatch)
    async with Environment(app) as env:
        run = await env.client.start(agent, GOAL)

        answer = await run.result()

    assert answer == Answer("stopped: 12000 of 10000 tokens are spent", turns=2, tokens=12_000)
    assert len(model.asked) == 2


async def test_a_turn_in_the_journal_is_never_asked_for_again(model: Recorded) -> None:
    """Crashed after each event in turn, the model is asked three times, as without a crash."""
    async with Environment(app) as env:
        events = await planned(env)
    for place in range(1, events + 1):
        model.asked.clear()
        async with Environment(app) as env:
            env.crash_after(place)

            await planned(env)

        # One more only where the crash came while the model was being asked, and nothing was kept yet.
        assert sorted(set(model.asked)) == [1, 4, 6]
        assert len(model.asked) <= 4


async def planned(env: Environment) -> int:
    """Let the agent plan its day, and return how long its journal became."""
    run = await env.client.start(agent, GOAL, run_id="trip")
    env.after(60, run.resolve, CONFIRM, True)
    assert BOOKED in (await run.result()).text
    return len(await run.journal())


async def test_the_agent_survives_a_crash_at_any_point() -> None:
    """Its answer and its conversation are the same each time."""

    async def scenario(env: Environment) -> tuple[Answer, dict[str, object]]:
        run = await env.client.start(agent, GOAL)
        env.after(60, run.resolve, CONFIRM, True)
        return await run.result(), await run.state()

    assert await crash_everywhere(app, scenario) > 30


async def test_a_confirmation_outlasts_a_restart_on_the_embedded_default(
    model: Recorded, tmp_path: Path
) -> None:
    """The turns before the restart are not paid for again, and the table is booked after it."""
    async with embedded(app, tmp_path) as client:
        run = await client.start(agent, GOAL, run_id="trip")
        await until_it_waits(run, CONFIRM)
    before = list(model.asked)

    async with embedded(app, tmp_path) as client:
        again = client.handle("trip")
        await again.resolve(CONFIRM, value=True)
        answer = await again.result(timeout=RESULT_WITHIN)

    assert before == [1, 4]
    assert model.asked == [1, 4, 6]
    assert BOOKED in answer["text"]
