"""A registered workflow as the replay layer runs it: JSON in, JSON out."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tidewheel.journal.events import Error
from tidewheel.journal.ids import PromiseId
from tidewheel.replay.execution import Entropy, Execution
from tidewheel.sdk import payload
from tidewheel.sdk.context import Context
from tidewheel.sdk.definitions import WorkflowDefinition
from tidewheel.sdk.failures import error_of


class WorkflowProgram:
    """Decodes the input, runs the workflow's function, encodes its result."""

    def __init__(self, definition: WorkflowDefinition) -> None:
        self._definition = definition

    def main(self, execution: Execution, given: list[Any]) -> Coroutine[Any, Any, Any]:
        """Make the coroutine of one run."""
        return self._run(Context(execution, self._definition), given)

    def error(self, problem: BaseException) -> Error:
        """Describe an exception the workflow let through."""
        return error_of(problem)

    async def _run(self, ctx: Context, given: list[Any]) -> Any:
        arguments = payload.decode_args(self._definition.hints, given, f"input of {self._definition.name}")
        result = await self._definition.fn(ctx, *arguments)
        return payload.encode(result, where="result")


def execution_of(
    definition: WorkflowDefinition, run: PromiseId, *, entropy: Entropy, first_position: int = 0
) -> Execution:
    """Make an execution of *definition* for *run*, with nothing loaded yet."""
    return Execution(
        WorkflowProgram(definition),
        run,
        policy=definition.policy,
        entropy=entropy,
        first_position=first_position,
    )
