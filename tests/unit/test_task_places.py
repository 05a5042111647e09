"""Which tasks may have a process of their own, and how that process finds them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidewheel import App, InvalidRequest
from tidewheel.sdk.definitions import definition_of
from tidewheel.workers.task_places import (
    TASK_PROCESS,
    check_processes,
    function_at,
    imported,
    module_of,
    place_of,
)
from tidewheel.workers.task_wire import Module, Place

app = App("places")


@app.task(process=True)
def found(number: int) -> int:
    """Can be imported."""
    return number + 1


async def waits() -> None:
    """Cannot be executed without a loop."""


class Holder:
    """Holds a function that can be imported all the same."""

    @staticmethod
    def held() -> str:
        """Say so."""
        return "held"


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    """What a test imports is forgotten."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def _local() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


@pytest.mark.parametrize(
    ("fn", "options", "message"),
    [
        (waits, {}, "waits is async"),
        (lambda: 1, {"name": "anonymous"}, "<lambda> cannot be imported by another process"),
        (_local(), {}, "inner cannot be imported by another process"),
        (Holder.held, {"transactional": True}, "a transactional task cannot have process=True"),
    ],
)
def test_what_cannot_be_executed_in_another_process_is_refused(
    fn: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    """When it is registered, with what to do instead."""
    with pytest.raises(InvalidRequest, match=message):
        App("refuses").task(process=True, **options)(fn)


def test_a_function_is_found_again_by_its_place() -> None:
    """By its module and its name in it, also inside a class."""
    holding = App("holding")
    holding.task(process=True)(Holder.held)
    check_processes(app)
    check_processes(holding)

    places = [place_of(app.tasks["found"]), place_of(holding.tasks["held"])]

    assert [place.qualname for place in places] == ["found", "Holder.held"]
    assert function_at(places[0])(1) == 2
    assert function_at(places[1])() == "held"


def test_a_function_that_another_has_replaced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would execute the other one."""
    monkeypatch.setattr(sys.modules[__name__], "found", len)

    with pytest.raises(InvalidRequest, match="found is not the function that was registered"):
        check_processes(app)


def test_a_module_is_imported_by_its_name_from_the_workers_path(tmp_path: Path) -> None:
    """As any import does."""
    (tmp_path / "by_name.py").write_text("VALUE = 1\n")
    sys.path.insert(0, str(tmp_path))

    module = imported(Module("by_name", str(tmp_path / "by_name.py")))

    assert module.VALUE == 1
    assert sys.modules["by_name"] is module


def test_a_file_is_imported_where_its_name_leads_elsewhere(tmp_path: Path) -> None:
    """An app in ``json.py`` is that file, and not the library's module; nor is it imported twice."""
    (tmp_path / "json.py").write_text("VALUE = 2\n")
    (tmp_path / "apart.py").write_text("VALUE = 3\n")

    shadowed = imported(Module("json", str(tmp_path / "json.py")))
    apart = imported(Module("apart", str(tmp_path / "apart.py")))

    assert (shadowed.VALUE, apart.VALUE) == (2, 3)
    assert not hasattr(sys.modules["json"], "VALUE")
    assert imported(Module("apart", str(tmp_path / "apart.py"))) is apart


def test_the_script_that_was_run_is_imported_without_being_run_again(tmp_path: Path) -> None:
    """Its name is not ``__main__`` there."""
    script = tmp_path / "script.py"
    script.write_text(
        "from tidewheel import App\napp = App('script')\n\n"
        "@app.task(process=True)\ndef double(n: int) -> int:\n    return 2 * n\n\n"
        "if __name__ == '__main__':\n    raise SystemExit('it was run')\n"
    )

    double = function_at(Place(Module("__main__", str(script)), "double"))

    assert double(21) == 42
    assert definition_of(double) is not None


def test_an_error_in_a_module_is_its_own(tmp_path: Path) -> None:
    """A module that it imports and that is not there is not taken for the module itself."""
    (tmp_path / "needs.py").write_text("import missing_altogether\n")
    sys.path.insert(0, str(tmp_path))

    with pytest.raises(ModuleNotFoundError, match="missing_altogether"):
        imported(Module("needs", str(tmp_path / "needs.py")))
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        imported(Module("nowhere", None))


def test_a_module_that_starts_a_worker_when_it_is_imported_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a process that executes tasks, workers would start processes without end."""
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(TASK_PROCESS, None)
    monkeypatch.setitem(sys.modules, "__main__", main)

    with pytest.raises(InvalidRequest, match='if __name__ == "__main__"'):
        check_processes(App("any"))


def test_a_module_without_a_file_is_known_by_its_name() -> None:
    """As those that are built in."""
    assert module_of(sys) == Module("sys", None)
