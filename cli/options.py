"""Arguments and options that several commands have: one name, one meaning, one help text each."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def examples(*lines: str) -> str:
    """Return the end of a help page that shows *lines* as examples."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


#: What every group of commands is made with.
GROUP: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # plain help: formatting it would cost more than all the rest
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}

App = Annotated[
    str,
    typer.Argument(metavar="APP", show_default=False, help="The app: module:app, or path.py:app for a file."),
]
RunId = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="The run, such as order-42.")]
OptionalRunId = Annotated[
    str | None,
    typer.Argument(metavar="ID", show_default=False, help="A run of the store, in place of --file."),
]
File = Annotated[
    str | None,
    typer.Option(
        "--file", metavar="F", show_default=False, help="The journal as JSON; - reads standard input."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON value per line, errors too.")]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        show_default=False,
        help="Where the journals are; else TIDEWHEEL_STORE, else sqlite:///tidewheel.db.",
    ),
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="URL",
        show_default=False,
        help="What carries work; else TIDEWHEEL_BROKER, else embedded://, a file beside the store.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        show_default=False,
        help="Whose runs; else TIDEWHEEL_NAMESPACE, else default.",
    ),
]
