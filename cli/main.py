"""The commands, their options and their help; what they do is in a module each.

Those modules are imported when a command runs: ``tidewheel --help`` does not wait for
what it does not need. Every error becomes one message and an exit code here.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

from tidewheel.cli import output
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.journal.errors import TidewheelError

#: What typer raises for a wrong command line; its module differs between versions, its child is public.
_USAGE_ERROR: Any = typer.BadParameter.__base__


class ChartFormat(enum.StrEnum):
    """What ``graph`` can write."""

    MERMAID = "mermaid"


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


_GROUP: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # plain help: formatting it would cost more than all the rest
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}
root = typer.Typer(
    help="Durable execution for Python: look at journals, and at the code that made them.",
    epilog=_examples(
        "tidewheel journal verify --file run.json",
        "tidewheel replay shop.py:app --file run.json",
        "tidewheel check shop.py:app",
        "tidewheel graph --file run.json",
    )
    + "\n\nExit codes: 0 ok, 1 something was found, 2 wrong usage or input, 3 not found, 130 interrupted.",
    **_GROUP,
)
journal = typer.Typer(
    help="Look at journals: what happened to a run.",
    epilog=_examples("tidewheel journal verify --file run.json"),
    **_GROUP,
)
root.add_typer(journal, name="journal")

App = Annotated[
    str,
    typer.Argument(metavar="APP", show_default=False, help="The app: module:app, or path.py:app for a file."),
]
OptionalApp = Annotated[
    str | None,
    typer.Argument(
        metavar="APP", show_default=False, help="Also check that this app has the run's workflow."
    ),
]
File = Annotated[
    str,
    typer.Option(
        "--file", metavar="F", show_default=False, help="The journal as JSON; - reads standard input."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON value per line, errors too.")]
Workflow = Annotated[
    str | None,
    typer.Option(
        "--workflow",
        metavar="NAME",
        show_default=False,
        help="The workflow to replay; otherwise the one the journal names.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Let warnings fail the check too.")]
Format = Annotated[ChartFormat, typer.Option("--format", help="What to write.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from tidewheel import __version__  # noqa: PLC0415 - only this option needs it

        output.emit(f"tidewheel {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
]


@root.callback()
def _root(version: Version = False) -> None:
    """Take the options that stand before a command."""


@journal.callback()
def _journal() -> None:
    """Make ``journal`` a group even while it has one command."""


@journal.command(
    "verify",
    short_help="List every rule that a journal breaks.",
    epilog=_examples(
        "tidewheel journal verify --file run.json",
        "cat run.json | tidewheel journal verify --file -",
        "tidewheel journal verify --file run.json --json | jq .rule",
    )
    + "\n\nExit codes: 0 valid, 1 broken or unreadable, 2 wrong usage, 3 no such file.",
)
def verify_command(file: File, as_json: Json = False) -> int:
    """List every rule that a journal breaks.

    Each breach is a line of JSON with the rule, the event where it fails (run_seq) and a
    message. A valid journal prints nothing. What cannot be read breaks the rule FORMAT.
    """
    from tidewheel.cli import verify  # noqa: PLC0415 - see the module's docstring

    return verify.run(file, as_json=as_json)


@root.command(
    "replay",
    short_help="Run a workflow's code against a recorded journal.",
    epilog=_examples(
        "tidewheel replay shop.py:app --file run.json",
        "tidewheel replay shop.flows:app --file run.json --workflow fulfil",
        "tidewheel replay shop.py:app --file run.json --json | jq .outcome",
    )
    + "\n\nExit codes: 0 completed, blocked or continued; 1 violation, failed or cancelled;"
    " 2 not a journal of that workflow; 3 no such app, workflow or file.",
)
def replay_command(app: App, file: File, workflow: Workflow = None, as_json: Json = False) -> int:
    """Run a workflow's code against a recorded journal.

    Nothing is executed: results come from the journal. The report says how the run stands, or
    in a violation which command of the code differs from the journal.
    """
    from tidewheel.cli import replay  # noqa: PLC0415 - see the module's docstring

    return replay.run(app, file, workflow, as_json=as_json)


@root.command(
    "check",
    short_help="Find what in an app's workflows would not replay.",
    epilog=_examples(
        "tidewheel check shop.py:app",
        "tidewheel check shop.flows:app --strict",
        "tidewheel check shop.py:app --json | jq .hint",
    )
    + "\n\nExit codes: 0 clean or only warnings, 1 an error (with --strict, also a warning),"
    " 2 wrong usage, 3 no such app.",
)
def check_command(app: App, strict: Strict = False, as_json: Json = False) -> int:
    """Find what in an app's workflows would not replay.

    Reads the source of each workflow for clocks, random numbers, files, threads and the like.
    A line that ends with the comment "# tidewheel: ignore" is skipped.
    """
    from tidewheel.cli import check  # noqa: PLC0415 - see the module's docstring

    return check.run(app, strict=strict, as_json=as_json)


@root.command(
    "graph",
    short_help="Draw a recorded run as a flowchart.",
    epilog=_examples(
        "tidewheel graph --file run.json > run.mmd",
        "tidewheel graph shop.py:app --file run.json",
    )
    + "\n\nExit codes: 0 drawn, 2 not a journal, 3 no such file, app or workflow.",
)
def graph_command(
    file: File,
    app: OptionalApp = None,
    chart_format: Format = ChartFormat.MERMAID,
    as_json: Json = False,
) -> int:
    """Draw a recorded run as a flowchart.

    The text is Mermaid: paste it where Markdown is shown, or into a Mermaid editor. Arrows
    lead from what the code was shown to what it then asked for.
    """
    from tidewheel.cli import graph  # noqa: PLC0415 - see the module's docstring

    return graph.run(app, file, chart_format.value, as_json=as_json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line *arguments*, by default those of the process, and return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    output.prepare()
    try:
        code = _run(given)
    except Failure as failure:
        output.report(failure, as_json="--json" in given)
        code = failure.code
    except (KeyboardInterrupt, typer.Abort):
        code = ExitCode.INTERRUPTED
    output.close()
    return int(code)


def _run(arguments: list[str]) -> int:
    try:
        return int(get_command(root).main(arguments, prog_name="tidewheel", standalone_mode=False) or 0)
    except _USAGE_ERROR as error:
        command = error.ctx.command_path if error.ctx is not None else "tidewheel"
        failure = Failure.invalid(error.format_message(), f"see `{command} --help`")
        failure.kind = "UsageError"
        raise failure from None
    except RecursionError:
        message = "the input is nested too deeply"
        raise Failure.invalid(message) from None
    except TidewheelError as error:
        raise Failure.invalid(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
