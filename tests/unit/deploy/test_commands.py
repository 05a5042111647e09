"""Every command, flag and variable that a deployment names is one that Tidewheel has.

A misspelt variable does nothing at all, and a misspelt flag is found by whoever deploys. So the files and the
page are read for both.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.unit.deploy.reading import DEPLOY, IS_CHECKOUT, ROOT, final_stage, our_services, variables
from tidewheel.cli.main import root
from tidewheel.sdk.settings import ConnectionSettings, Settings, fields_of
from tidewheel.sdk.settings_page import CLASSES, load_class

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")

PAGE = ROOT / "docs" / "deploy.md"
#: Flags of arguments to ``tidewheel`` in a shell line end where the shell goes on.
_SHELL = {"|", "||", "&&", ">", ";", "&"}


def trouble_with(arguments: list[str]) -> str | None:
    """Say what is wrong with the command line ``tidewheel`` *arguments*; None if nothing is."""
    command: Any = get_command(root)
    path = "tidewheel"
    rest = list(arguments)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in command.commands:
            return f"{path} has no command {name!r}"
        command, path = command.commands[name], f"{path} {name}"
    if hasattr(command, "commands") and not rest:
        return f"{path} needs a command"
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    wrong = [part for part in rest if part.startswith("-") and part.split("=")[0] not in known | {"--help"}]
    return f"{path} has no {', '.join(wrong)}" if wrong else None


def known_variables() -> set[str]:
    """Return the variables of all classes of settings, as ``docs/configuration.md`` lists them."""
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    return set(re.findall(r"^\| `(TIDEWHEEL_\w+)` \|", page, re.MULTILINE))


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``tidewheel`` command in the code of a page: in lists, blocks and words."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    words = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for listed in re.findall(r"command: (\[.*?\])", text):
        yield yaml.safe_load(listed)
    for line in [*lines, *words]:
        found = re.match(
            r"\s*(?:\$ )?(?:tidewheel|docker compose .*?\b(?:cli|worker|keeper)) (?P<rest>.*)", line
        )
        if found is not None:
            yield list(until_shell(shlex.split(found["rest"], comments=True)))


def until_shell(parts: Iterable[str]) -> Iterator[str]:
    """Yield *parts* up to where the shell goes on."""
    for part in parts:
        if part in _SHELL:
            return
        yield part


@pytest.mark.parametrize("name", sorted(our_services()) if IS_CHECKOUT else [])
def test_every_service_runs_a_command_that_exists(name: str) -> None:
    """With flags that it has."""
    assert trouble_with(our_services()[name]["command"]) is None


def test_the_image_says_what_it_can_do_if_nothing_is_asked() -> None:
    """Its default is the help."""
    assert [json.loads(rest) for rest in final_stage()["CMD"]] == [["--help"]]


def test_every_command_of_the_page_exists() -> None:
    """Readers copy them."""
    found = list(command_lines(PAGE.read_text("utf-8")))

    assert len(found) >= 3
    assert {shlex.join(line): trouble for line in found if (trouble := trouble_with(line))} == {}


def test_every_variable_exists() -> None:
    """In the files of a deployment and on the page about it."""
    files = [PAGE, *(path for path in DEPLOY.rglob("*") if path.is_file() and "secrets" not in path.parts)]
    texts = {path.name: path.read_text("utf-8") for path in files if path.suffix != ".pyc"}
    used = {name: set(re.findall(r"\bTIDEWHEEL_[A-Z_]+[A-Z]\b", text)) for name, text in texts.items()}

    assert used["compose.yaml"]
    assert {
        name: found - known_variables() for name, found in used.items() if found - known_variables()
    } == {}


@pytest.mark.parametrize("name", sorted(our_services()) if IS_CHECKOUT else [])
def test_every_value_can_be_read(name: str) -> None:
    """Compose hands over text: a number is quoted, and within its bounds."""
    environment = our_services()[name]["environment"]
    plain = {key: value for key, value in environment.items() if not key.endswith("_FILE")}

    assert all(isinstance(value, str) for value in environment.values())
    assert len(settings_classes()) >= 6
    for cls in settings_classes():
        cls.from_environment(variables(final_stage()) | plain)


def settings_classes() -> list[type[Settings]]:
    """Return every class of settings, as ``make docs`` lists them."""
    named = re.findall(r"\btidewheel(?:\.\w+)+:\w+", (ROOT / "Makefile").read_text("utf-8"))
    return [*CLASSES, *map(load_class, named)]


def test_the_list_of_variables_is_whole() -> None:
    """The page that these tests compare with lists at least what everything reads."""
    expected = {field.key.variable for field in fields_of(ConnectionSettings)}

    assert expected | {"TIDEWHEEL_STORE_FILE", "TIDEWHEEL_GRACE"} <= known_variables()


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ("worker order.py:app --queue default", None),
        ("db migrate", None),
        ("--version", None),
        ("run start fulfil --input='[1]'", None),
        ("work order.py:app", "tidewheel has no command 'work'"),
        ("db upgrade", "tidewheel db has no command 'upgrade'"),
        ("db", "tidewheel db needs a command"),
        ("keeper --queues a --json", "tidewheel keeper has no --queues"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, trouble: str | None) -> None:
    """What is missing is named."""
    assert trouble_with(shlex.split(line)) == trouble


def test_commands_are_found_in_a_page() -> None:
    """In blocks, after a prompt, behind compose, and in the text."""
    block = "```\n$ tidewheel doctor | less\ndocker compose run --rm cli run list\n```\n"
    text = f"Use `tidewheel db migrate` and `command: [keeper, --json]`.\n\n{block}"

    assert list(command_lines(text)) == [["keeper", "--json"], ["doctor"], ["run", "list"], ["db", "migrate"]]
