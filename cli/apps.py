"""Finding the app that ``module:app`` or ``path.py:app`` names.

A module is imported as ``python -m`` would, with the current folder on the path; a file as
``python path.py`` would, with its own folder on it. What a module prints while it is
imported goes to standard error: standard output belongs to the command.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
import warnings
from pathlib import Path
from types import ModuleType, TracebackType

from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.sdk.app import App
from tidewheel.sdk.definitions import WorkflowDefinition
from tidewheel.sdk.errors import DeterminismWarning

_FORM = "write it as module:app or path.py:app, such as shop.py:app"


def load(reference: str, *, warn: bool) -> App:
    """Return the app that *reference* names; with *warn*, its determinism warnings are shown."""
    place, colon, name = reference.rpartition(":")
    if not (colon and place and name):
        message = f"{reference!r} does not name an app"
        raise Failure.invalid(message, _FORM)
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        if not warn:
            warnings.simplefilter("ignore", DeterminismWarning)
        module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    found = vars(module).get(name)
    if isinstance(found, App):
        found.home = module
        return found
    problem = f"{place} has no {name!r}" if found is None else f"{name!r} in {place} is not an App"
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    known = " or ".join(f"{place}:{key}" for key in apps)
    raise Failure.not_found(problem, f"did you mean {known}?" if known else f"{place} holds no App at all")


def workflow_of(app: App, recorded: str, wanted: str | None) -> WorkflowDefinition:
    """Return the workflow called *wanted*, else the one that was *recorded*, else the only one there is."""
    known = ", ".join(sorted(app.workflows)) or "none"
    name = wanted or recorded
    if not name and len(app.workflows) == 1:
        return next(iter(app.workflows.values()))
    if not name and app.workflows:
        message = "the journal does not say which workflow it is of"
        raise Failure.invalid(message, f"say it with --workflow; app {app.name!r} has: {known}")
    found = app.workflows.get(name)
    if found is None:
        message = (
            f"app {app.name!r} has no workflow {name!r}" if name else f"app {app.name!r} has no workflow"
        )
        raise Failure.not_found(message, f"it has: {known}")
    return found


def _from_name(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        parts = name.split(".")
        if error.name in [".".join(parts[: count + 1]) for count in range(len(parts))]:
            message = f"there is no module {name!r}: {error}"
            raise Failure.not_found(message, f"run this where it can be imported from, or {_FORM}") from None
        raise _import_failed(name, error) from error
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise _import_failed(name, error) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        message = f"there is no file {str(path)!r}"
        raise Failure.not_found(message, "APP is a file and the name of the App in it: path.py:app")
    path = path.resolve()
    parts = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():  # a module of a package imports its siblings by its name
        parts.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    name = ".".join(parts)
    if len(parts) > 1:
        return _from_name(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where a module of this name is loaded already, ours must not take its place.
    sys.modules.setdefault(name, module)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise _import_failed(str(path), error) from error
    return module


def _import_failed(what: str, error: BaseException) -> Failure:
    trace = "".join(traceback.format_exception(type(error), error, _users_own(error.__traceback__)))
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    message = f"{what} cannot be imported: {detail}"
    return Failure(message, code=ExitCode.INVALID, kind=type(error).__name__, trace=trace)


def _users_own(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames of this module and of the import system."""
    while trace is not None and (
        trace.tb_frame.f_code.co_filename == __file__
        or trace.tb_frame.f_globals.get("__name__", "").startswith("importlib")
    ):
        trace = trace.tb_next
    return trace
