"""What a process says when it is ready: what it has, where it keeps it, and how to use it."""

from __future__ import annotations

import inspect
import json
import logging
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewheel.cli import output
from tidewheel.cli.connecting import located, shown
from tidewheel.sdk.app import App
from tidewheel.sdk.definitions import Definition, WorkflowDefinition
from tidewheel.sdk.settings import ConnectionSettings

logger = logging.getLogger("tidewheel.process")


#: Workflows, and tasks, that are listed.
LISTED_MAX = 200
#: A signature is cut after so much.
SIGNATURE_MAX = 100


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What an app has, as people are told: signatures by name."""

    name: str
    workflows: dict[str, str]
    tasks: dict[str, str]


def contents_of(app: App) -> Contents:
    """Return what *app* has."""
    return Contents(name=app.name, workflows=_signatures(app.workflows), tasks=_signatures(app.tasks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Shown once, when everything works."""

    command: str
    reference: str | None
    settings: ConnectionSettings
    queues: tuple[str, ...] = ()
    #: How to start a run, where that is worth telling.
    start: str | None = None

    def show(
        self, contents: Contents | None, *, processes: Mapping[str, int] | None = None, as_json: bool
    ) -> None:
        """Say that everything works, and with what; *processes* are those beside this one, by name."""
        if not as_json:
            for line in self.lines(contents, processes or {}):
                output.say(line)
        logger.info("ready", extra={"fields": self.fields(contents, processes)})

    def fields(self, contents: Contents | None, processes: Mapping[str, int] | None) -> dict[str, Any]:
        """Return what a log line says of it."""
        said: dict[str, Any] = {
            "role": self.command,
            "pid": os.getpid(),
            "store": shown(self.settings.store),
            "broker": shown(self.settings.broker),
            "namespace": self.settings.namespace,
        }
        if processes:
            said["processes"] = dict(processes)
        if contents is not None:
            said |= {
                "app": contents.name,
                "queues": list(self.queues),
                "workflows": sorted(contents.workflows),
                "tasks": sorted(contents.tasks),
            }
        return said

    def lines(self, contents: Contents | None, processes: Mapping[str, int]) -> list[str]:
        """Return what people are told."""
        of = "" if contents is None else f": app {contents.name!r} of {self.reference}"
        lines = [
            f"tidewheel {self.command}{of}",
            f"  store      {located(self.settings.store)}",
            f"  broker     {located(self.settings.broker)}"
            + (" (a file beside the store)" if self.settings.broker == "embedded://" else ""),
            f"  namespace  {self.settings.namespace}"
            + (f", queues {', '.join(self.queues)}" if self.queues else ""),
            f"  process    {os.getpid()}" + "".join(f", {name} {pid}" for name, pid in processes.items()),
        ]
        if contents is not None:
            lines.append(f"  workflows  {', '.join(contents.workflows.values()) or 'none'}")
            lines.append(f"  tasks      {', '.join(contents.tasks.values()) or 'none'}")
        if self.start is not None:
            lines += ["Start a run, in another terminal:", f"  {self.start}"]
        return lines


def start_command(app: App, settings: ConnectionSettings, queues: tuple[str, ...]) -> str | None:
    """Return a command that starts a run of the first workflow here."""
    if not app.workflows:
        return None
    workflow = next(iter(app.workflows.values()))
    words = ["tidewheel", "run", "start", workflow.name]
    names = _parameters(workflow)
    if names:
        words += ["--input", json.dumps(names)]
    if queues and (workflow.queue or "default") not in queues:
        words += ["--queue", queues[0]]
    there = ConnectionSettings.from_environment()
    if settings.store != there.store:
        words += ["--store", settings.store]
    if settings.broker != there.broker:
        words += ["--broker", settings.broker]
    if settings.namespace != there.namespace:
        words += ["--namespace", settings.namespace]
    return shlex.join(words)


def _signatures(definitions: Mapping[str, Definition]) -> dict[str, str]:
    found = {name: _signature(one)[:SIGNATURE_MAX] for name, one in definitions.items()}
    if len(found) <= LISTED_MAX:
        return found
    listed = list(found.items())
    return {**dict(listed[:LISTED_MAX]), "...": f"and {len(found) - LISTED_MAX:,} more"}


def _signature(definition: Definition) -> str:
    return f"{definition.name}({', '.join(_parameters(definition))})"


def _parameters(definition: Definition) -> list[str]:
    names = list(inspect.signature(definition.fn).parameters)
    return names[1:] if isinstance(definition, WorkflowDefinition) else names
