"""What a process says when it is ready: what it has, where it keeps it, and how to use it."""

from __future__ import annotations

import inspect
import json
import logging
import os
import shlex
from dataclasses import dataclass
from typing import Any

from tidewheel.cli import output
from tidewheel.cli.connecting import located, shown
from tidewheel.sdk.app import App
from tidewheel.sdk.definitions import Definition, WorkflowDefinition
from tidewheel.sdk.settings import ConnectionSettings

logger = logging.getLogger("tidewheel.process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Shown once, when everything works."""

    command: str
    reference: str | None
    app: App | None
    settings: ConnectionSettings
    queues: tuple[str, ...]

    def show(self, *, as_json: bool) -> None:
        """Say that everything works, and with what."""
        if not as_json:
            for line in self.lines():
                output.say(line)
        logger.info("ready", extra={"fields": self.fields()})

    def fields(self) -> dict[str, Any]:
        """Return what a log line says of it."""
        said: dict[str, Any] = {
            "role": self.command,
            "pid": os.getpid(),
            "store": shown(self.settings.store),
            "broker": shown(self.settings.broker),
            "namespace": self.settings.namespace,
        }
        if self.app is not None:
            said |= {
                "app": self.app.name,
                "queues": list(self.queues),
                "workflows": sorted(self.app.workflows),
                "tasks": sorted(self.app.tasks),
            }
        return said

    def lines(self) -> list[str]:
        """Return what people are told."""
        of = "" if self.app is None else f": app {self.app.name!r} of {self.reference}"
        lines = [
            f"tidewheel {self.command}{of}",
            f"  store      {located(self.settings.store)}",
            f"  broker     {located(self.settings.broker)}"
            + (" (a file beside the store)" if self.settings.broker == "embedded://" else ""),
            f"  namespace  {self.settings.namespace}"
            + (f", queues {', '.join(self.queues)}" if self.queues else ""),
            f"  process    {os.getpid()}",
        ]
        if self.app is not None:
            lines.append(f"  workflows  {_listed(self.app.workflows)}")
            lines.append(f"  tasks      {_listed(self.app.tasks)}")
            if self.command == "dev" and self.app.workflows:
                lines += ["Start a run, in another terminal:", f"  {self._start()}"]
        return lines

    def _start(self) -> str:
        """Return a command that starts a run of the first workflow here."""
        assert self.app is not None
        workflow = next(iter(self.app.workflows.values()))
        words = ["tidewheel", "run", "start", workflow.name]
        names = _parameters(workflow)
        if names:
            words += ["--input", json.dumps(names)]
        if self.queues and (workflow.queue or "default") not in self.queues:
            words += ["--queue", self.queues[0]]
        there = ConnectionSettings.from_environment()
        if self.settings.store != there.store:
            words += ["--store", self.settings.store]
        if self.settings.broker != there.broker:
            words += ["--broker", self.settings.broker]
        if self.settings.namespace != there.namespace:
            words += ["--namespace", self.settings.namespace]
        return shlex.join(words)


def _listed(definitions: Any) -> str:
    return ", ".join(_signature(each) for each in definitions.values()) or "none"


def _signature(definition: Definition) -> str:
    return f"{definition.name}({', '.join(_parameters(definition))})"


def _parameters(definition: Definition) -> list[str]:
    names = list(inspect.signature(definition.fn).parameters)
    return names[1:] if isinstance(definition, WorkflowDefinition) else names
