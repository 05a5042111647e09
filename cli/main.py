"""The command as a whole: its groups put together, and every error made one message and an exit code.

What a command does is imported when it runs: ``tidewheel --help`` does not wait for what it
does not need.
"""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

from tidewheel.cli import output
from tidewheel.cli.commands import databases, dead_letters, journals, projectors, queues, roles, runs
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.options import GROUP, examples
from tidewheel.journal.errors import TidewheelError

#: What typer raises for a wrong command line; its module differs between versions, its child is public.
_USAGE_ERROR: Any = typer.BadParameter.__base__

root = typer.Typer(
    help="Durable execution for Python: run workflows, look at them, and at the code that made them.",
    epilog=examples(
        "tidewheel dev shop.py:app",
        "tidewheel run start order --input '[7]' --wait",
        "tidewheel run show order-42",
        "tidewheel doctor",
    )
    + "\n\nExit codes: 0 ok, 1 something was found, 2 wrong usage or input, 3 not found,"
    " 4 store or broker unreachable, 5 refused, 130 interrupted.",
    **GROUP,
)


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


roles.add_to(root)
projectors.add_to(root)
runs.add_to(root)
journals.add_to(root)
dead_letters.add_to(root)
queues.add_to(root)
databases.add_to(root)


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


@functools.cache
def _command() -> Any:
    """Return the tree of commands: it takes a while to build, and is always the same."""
    return get_command(root)


def _run(arguments: list[str]) -> int:
    try:
        return int(_command().main(arguments, prog_name="tidewheel", standalone_mode=False) or 0)
    except _USAGE_ERROR as error:
        if error.ctx is not None and error.format_message().startswith("Missing command"):
            output.say(error.ctx.get_help())
            return ExitCode.INVALID
        command = error.ctx.command_path if error.ctx is not None else "tidewheel"
        failure = Failure.invalid(error.format_message(), f"see `{command} --help`")
        failure.kind = "UsageError"
        raise failure from None
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        raise output.unwritable(error) from error  # help is written by typer itself
    except RecursionError:
        message = "the input is nested too deeply"
        raise Failure.invalid(message) from None
    except TidewheelError as error:
        from tidewheel.cli.refusals import failure_of  # noqa: PLC0415 - only where something went wrong

        raise failure_of(error) from error


if __name__ == "__main__":
    sys.exit(main())
