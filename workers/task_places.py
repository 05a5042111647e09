"""How another process finds the function of a task: by its module and its name in it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tidewheel.journal.errors import InvalidRequest
from tidewheel.sdk.app import App
from tidewheel.sdk.definitions import TaskDefinition, definition_of
from tidewheel.workers.task_wire import Module, Place

#: The module that a process which executes tasks was started with.
TASK_PROCESS = "tidewheel.workers.task_process"


def module_of(module: ModuleType) -> Module:
    """Describe a module of this process."""
    file = getattr(module, "__file__", None)
    return Module(module.__name__, None if file is None else str(Path(file).resolve()))


def place_of(definition: TaskDefinition) -> Place:
    """Return where the task's function is, or refuse one that another process would not find there."""
    fn = definition.fn
    found: Any = sys.modules.get(fn.__module__)
    for name in fn.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not fn and definition_of(found) != definition:
        message = (
            f"task {definition.name!r}: {fn.__module__}.{fn.__qualname__} is not the function that was "
            "registered with process=True, so another process would not find it: define it at the top of "
            "its module, under a name of its own"
        )
        raise InvalidRequest(message)
    return Place(module_of(sys.modules[fn.__module__]), fn.__qualname__)


def check_processes(app: App) -> None:
    """Refuse to begin where processes could not execute the tasks of *app* that ask for one."""
    if is_task_process():
        message = (
            "this process executes tasks for a worker, and a module that it imported starts a worker here: "
            'put what is not for import behind `if __name__ == "__main__":`'
        )
        raise InvalidRequest(message)
    for definition in app.tasks.values():
        if definition.process:
            place_of(definition)


def is_task_process() -> bool:
    """Tell whether this process executes tasks for a worker."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == TASK_PROCESS


def function_at(place: Place) -> Any:
    """Return the function at *place*, importing its module if this process has not yet."""
    found: Any = imported(place.module)
    for name in place.qualname.split("."):
        found = getattr(found, name)
    definition = definition_of(found)
    return definition.fn if isinstance(definition, TaskDefinition) else found


def imported(module: Module) -> ModuleType:
    """Import what the worker has imported under this name."""
    if module.name == "__main__":  # the script that was run: here it is a module like any other
        assert module.file is not None, "there is no file to import"
        return _from_file(Path(module.file).stem, module.file)
    try:
        found = importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if module.file is None or error.name not in _packages_of(module.name):
            raise
    else:
        theirs = getattr(found, "__file__", None)
        if module.file is None or theirs is None or Path(theirs).resolve() == Path(module.file):
            return found
    assert module.file is not None
    return _from_file(module.name, module.file)


def _packages_of(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _from_file(name: str, file: str) -> ModuleType:
    known = _loaded.get(file)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        message = f"{file} is no Python module"
        raise ImportError(message)
    module = _loaded[file] = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del _loaded[file]
        raise
    return module


#: Modules that were loaded from their files.
_loaded: dict[str, ModuleType] = {}
