"""The text of ``docs/configuration.md``, generated from the classes of settings.

``python -m tidewheel.sdk.settings_page > docs/configuration.md`` writes it. Classes of folders above
this one are named on the command line, as ``module:Class``, and follow in that order.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tidewheel.journal.wording import code, said, table
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.settings import ConnectionSettings, Field, Settings, Unit, fields_of
from tidewheel.sdk.store_settings import PostgresSettings

INTRO: Final = """\
# Configuration

A flag or an argument comes first, then the environment variable, then the default. Durations are in
seconds, unless the name says otherwise; switches are `1` or `0`, `true` or `false`; lists have commas
between. A variable that is set to nothing counts as not set. A value that cannot work is refused at the
start, by name. What may hold a password can be kept in a file that the variable with `_FILE` names; it is
read once, at the start.

This page is generated from the code, by `make docs`.
"""
#: The settings of clients, which every other process reads too.
CLASSES: Final[tuple[type[Settings], ...]] = (ConnectionSettings, PostgresSettings, Limits)

_KIB: Final = 1024


def document(classes: Iterable[type[Settings]]) -> str:
    """Return the page: a table for each of *classes*, a row for each key."""
    return "\n".join([INTRO, *(_section(cls) for cls in classes)])


def _section(cls: type[Settings]) -> str:
    rows = [row for field in fields_of(cls) for row in _rows(field)]
    return f"## {_heading(cls)}\n\n{said(cls)}\n\n{table(['key', 'default', 'meaning'], rows)}"


def _rows(field: Field) -> Iterator[list[str]]:
    """Yield the row of a setting, and one for the file that may hold it."""
    key = field.key
    yield [code(key.variable), _default(field), key.meaning]
    if key.file_variable:
        yield [code(key.file_variable), "none", f"A file that holds {code(key.variable)}, in place of it."]


def _heading(cls: type[Settings]) -> str:
    return cls.__name__.removesuffix("Settings").removesuffix("Config")


def _default(field: Field) -> str:
    value: Any = field.default
    match value:
        case None | () | "":
            return "none"
        case bool():
            return code("1" if value else "0")
        case tuple():
            return code(",".join(value))
        case int() | float() if field.key.unit is Unit.BYTES:
            return f"{code(str(value))} ({_size(int(value))})"
        case int() | float() if field.key.unit is Unit.SECONDS:
            return f"{code(f'{value:g}')} s"
        case int() | float() if field.key.unit is Unit.MILLISECONDS:
            return f"{code(str(value))} ms"
        case _:
            return code(str(value))


def _size(size_bytes: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size_bytes < _KIB or size_bytes % _KIB:
            return f"{size_bytes} {unit}"
        size_bytes //= _KIB
    return f"{size_bytes} GiB"


def load_class(name: str) -> type[Settings]:
    """Return the class of settings called ``module:Class``."""
    module, _, cls = name.partition(":")
    found = getattr(importlib.import_module(module), cls)
    assert isinstance(found, type), f"{name} is not a class"
    assert issubclass(found, Settings), f"{name} is not a class of settings"
    return found


def main(names: Sequence[str]) -> None:
    """Write the page, with the classes called *names* after our own."""
    sys.stdout.write(document([*CLASSES, *(load_class(name) for name in names)]))


if __name__ == "__main__":
    main(sys.argv[1:])
