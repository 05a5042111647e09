"""``App``: the registry of a service's workflows, tasks and projections."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Literal, TypeVar, cast, overload

from tidewheel.journal.errors import InvalidRequest
from tidewheel.journal.events import InvokeLimits
from tidewheel.journal.ids import check_name, check_version
from tidewheel.replay.execution import Policy
from tidewheel.sdk.definitions import (
    Definition,
    TaskDefinition,
    WorkflowDefinition,
    attach,
    refuse_process,
    task_hints,
    workflow_definition,
    workflow_hints,
)
from tidewheel.sdk.digest import component_digest
from tidewheel.sdk.durations import Duration, positive_seconds
from tidewheel.sdk.errors import DeterminismWarning, NotFound
from tidewheel.sdk.lint import lint
from tidewheel.sdk.projections import ProjectionDefinition, projection_definition
from tidewheel.sdk.retry import Retry

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type[Any])


class App:
    """A named set of workflows, tasks and projections; ``include`` takes in another's."""

    def __init__(
        self,
        name: str,
        *,
        strict_inputs: bool = False,
        allow_orphans: bool = False,
        on_violation: Literal["fail", "park"] = "fail",
    ) -> None:
        """Make an empty registry.

        *strict_inputs* makes a replayed step whose input differs from the journal's a
        violation. *allow_orphans* lets a run complete although its journal has steps that the
        code no longer asks for. *on_violation* is what happens to a run whose code no longer
        fits: it fails, or is parked to wait for a fixed deploy.
        """
        self.name = check_name(name, "app")
        self.tasks: dict[str, TaskDefinition] = {}
        self.workflows: dict[str, WorkflowDefinition] = {}
        self.projections: dict[str, ProjectionDefinition] = {}
        #: The module that has the app as it is executed, if that is known: processes for tasks import it.
        self.home: ModuleType | None = None
        self._policy = Policy(strict_inputs=strict_inputs, allow_orphans=allow_orphans)
        if on_violation not in ("fail", "park"):
            message = f"on_violation={on_violation!r}: write 'fail' or 'park'"
            raise InvalidRequest(message)
        self._on_violation = on_violation

    @overload
    def task(self, fn: F, /) -> F: ...
    @overload
    def task(
        self,
        *,
        name: str | None = ...,
        queue: str | None = ...,
        retry: Retry | None = ...,
        timeout: Duration | None = ...,
        schedule_to_start: Duration | None = ...,
        schedule_to_close: Duration | None = ...,
        heartbeat: Duration | None = ...,
        on_exhausted: Literal["raise", "park"] = ...,
        raises: Iterable[type[Exception]] = ...,
        transactional: bool = ...,
        inline: bool = ...,
        process: bool = ...,
    ) -> Callable[[F], F]: ...
    def task(self, *functions: Any, **options: Any) -> Any:
        """Register a plain function, sync or async, as a task; it stays callable as it is.

        *timeout* is from start to close of one attempt. *raises* lists the exception classes
        that reach the workflow as themselves. *on_exhausted* is what happens when the attempts
        are spent: the error is raised in the workflow, or the step is parked for an operator. With
        *process* a plain function is executed in a process of its own, which suits what needs the CPU.
        """
        if functions:
            (fn,) = functions
            self._add_task(fn, **options)
            return fn

        def decorate(decorated: F) -> F:
            self._add_task(decorated, **options)
            return decorated

        return decorate

    @overload
    def workflow(self, fn: F, /) -> F: ...
    @overload
    def workflow(
        self,
        *,
        name: str | None = ...,
        version: str | None = ...,
        queue: str | None = ...,
        pin: Literal["version", "digest"] = ...,
        strict_inputs: bool | None = ...,
        allow_orphans: bool | None = ...,
        on_violation: Literal["fail", "park"] | None = ...,
    ) -> Callable[[F], F]: ...
    def workflow(self, *functions: Any, **options: Any) -> Any:
        """Register an ``async def`` that takes a ``Context`` first as a workflow.

        *version* labels the code: a labelled run waits for a worker of the same label.
        """
        if functions:
            (fn,) = functions
            self._add_workflow(fn, **options)
            return fn

        def decorate(decorated: F) -> F:
            self._add_workflow(decorated, **options)
            return decorated

        return decorate

    @overload
    def projection(self, cls: C, /) -> C: ...
    @overload
    def projection(self, *, name: str | None = ..., table: str | None = ...) -> Callable[[C], C]: ...
    def projection(self, *classes: Any, **options: Any) -> Any:
        """Register a frozen dataclass as a projection: its instances are the rows of a table.

        Its fields are the columns, those without a default the key. ``key(event)`` is the key of the row that
        a public event is about, or None; ``row.reduce(event)`` is the row after it. *table* is the name of
        the table, by default that of the class in small letters.
        """
        if classes:
            (cls,) = classes
            self._add_projection(cls, **options)
            return cls

        def decorate(decorated: C) -> C:
            self._add_projection(decorated, **options)
            return decorated

        return decorate

    def include(self, other: App) -> None:
        """Take in all workflows, tasks and projections of *other*."""
        for projection in other.projections.values():
            self._refuse_taken(self.projections, projection, "projection")
            self.projections[projection.name] = projection
        for task in other.tasks.values():
            self._refuse_taken(self.tasks, task, "task")
            self.tasks[task.name] = task
        for workflow in other.workflows.values():
            self._refuse_taken(self.workflows, workflow, "workflow")
            self.workflows[workflow.name] = workflow

    def workflow_named(self, workflow: str | Callable[..., Any]) -> WorkflowDefinition:
        """Find a workflow by its function or name."""
        if not isinstance(workflow, str):
            workflow = workflow_definition(workflow).name
        found = self.workflows.get(workflow)
        if found is None:
            raise NotFound(_unknown("workflow", workflow, self.name, self.workflows))
        return found

    def task_named(self, name: str) -> TaskDefinition:
        """Find a task by its name."""
        found = self.tasks.get(name)
        if found is None:
            raise NotFound(_unknown("task", name, self.name, self.tasks))
        return found

    def _add_task(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        schedule_to_start: Duration | None = None,
        schedule_to_close: Duration | None = None,
        heartbeat: Duration | None = None,
        on_exhausted: Literal["raise", "park"] = "raise",
        raises: Iterable[type[Exception]] = (),
        transactional: bool = False,
        inline: bool = True,
        process: bool = False,
    ) -> None:
        hints = task_hints(fn)
        if process:
            refuse_process(fn, transactional=transactional)
        if on_exhausted not in ("raise", "park"):
            message = f"on_exhausted={on_exhausted!r}: write 'raise' or 'park'"
            raise InvalidRequest(message)
        definition = TaskDefinition(
            name=check_name(name if name is not None else fn.__name__, "task"),
            fn=fn,
            hints=hints,
            retry=(retry or Retry()).policy(),
            limits=InvokeLimits(
                timeout=positive_seconds(timeout, "timeout"),
                schedule_to_start=positive_seconds(schedule_to_start, "schedule_to_start"),
                schedule_to_close=positive_seconds(schedule_to_close, "schedule_to_close"),
                heartbeat=positive_seconds(heartbeat, "heartbeat"),
                on_exhausted=on_exhausted,
            ),
            queue=None if queue is None else check_name(queue, "queue"),
            raises=_exception_classes(raises),
            transactional=transactional,
            inline=inline,
            process=process,
        )
        self._refuse_taken(self.tasks, definition, "task")
        attach(fn, definition)
        self.tasks[definition.name] = definition

    def _add_workflow(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        version: str | None = None,
        queue: str | None = None,
        pin: Literal["version", "digest"] = "version",
        strict_inputs: bool | None = None,
        allow_orphans: bool | None = None,
        on_violation: Literal["fail", "park"] | None = None,
    ) -> None:
        hints = workflow_hints(fn)
        policy = Policy(
            strict_inputs=self._policy.strict_inputs if strict_inputs is None else strict_inputs,
            allow_orphans=self._policy.allow_orphans if allow_orphans is None else allow_orphans,
        )
        definition = WorkflowDefinition(
            name=check_name(name if name is not None else fn.__name__, "workflow"),
            fn=fn,
            hints=hints,
            digest=component_digest(fn, version or ""),
            version="" if version is None else check_version(version),
            queue=None if queue is None else check_name(queue, "queue"),
            policy=policy,
            on_violation=on_violation or self._on_violation,
            pin=pin,
        )
        self._refuse_taken(self.workflows, definition, "workflow")
        attach(fn, definition)
        self.workflows[definition.name] = definition
        for finding in lint(fn):
            where = f"{finding.path}:{finding.line}"
            warnings.warn(f"{where}: {finding.message}", DeterminismWarning, stacklevel=3)

    def _add_projection(self, cls: type[Any], *, name: str | None = None, table: str | None = None) -> None:
        definition = projection_definition(cls, name=name, table=table)
        self._refuse_taken(self.projections, definition, "projection")
        self.projections[definition.name] = definition

    def _refuse_taken(
        self,
        registry: Mapping[str, Definition | ProjectionDefinition],
        definition: Definition | ProjectionDefinition,
        what: str,
    ) -> None:
        known = registry.get(definition.name)
        if known is not None and known.fn is not definition.fn:
            message = (
                f"app {self.name!r} already has a {what} {definition.name!r}: give one of them another name="
            )
            raise InvalidRequest(message)


def _exception_classes(raises: Iterable[type[Exception]]) -> tuple[type[Exception], ...]:
    classes: tuple[object, ...] = tuple(raises)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            message = f"raises=: {one!r} is not an exception class"
            raise InvalidRequest(message)
    return cast("tuple[type[Exception], ...]", classes)


def _unknown(what: str, name: str, app: str, known: Iterable[str]) -> str:
    listed = ", ".join(sorted(known)) or "none"
    return f"app {app!r} has no {what} {name!r}; it has: {listed}"
