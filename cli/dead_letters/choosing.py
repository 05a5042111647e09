"""Which dead letters a command is about: by their ids, by what they are of, or all of them.

A dead letter is known by its run and the first of its events: ``order-42@3``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from tidewheel.cli.failure import Failure
from tidewheel.journal.ids import check_name
from tidewheel.sdk.door import check_any_run_id
from tidewheel.store.outbox import DeadLetter, DeadLetterFilter, Outbox, Place

#: So many are read at a time, and changed in one transaction.
PAGE: Final = 500


def letter_id(letter: DeadLetter) -> str:
    """Return what people call *letter*."""
    return f"{letter.run.run_id}@{letter.place.first_seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the command line says of which ones."""

    ids: tuple[str, ...] = ()
    run_id: str | None = None
    workflow: str | None = None
    every: bool = False

    def check(self) -> None:
        """Refuse what names nothing, or nothing that can be."""
        for one in self.ids:
            parse_id(one)
        if self.run_id is not None:
            check_any_run_id(self.run_id)
        if self.workflow is not None:
            check_name(self.workflow, "workflow")

    def check_says_which(self, command: str) -> None:
        """Refuse to change anything that was not chosen."""
        by_filter = self.run_id is not None or self.workflow is not None
        if not self.ids and not by_filter and not self.every:
            message = "which dead letters? Name some, or choose by --run or --workflow, or say --all"
            raise Failure.usage(message, f"tidewheel dlq {command}")
        if self.ids and (by_filter or self.every):
            message = "dead letters are either named, or chosen by --run, --workflow or --all"
            raise Failure.usage(message, f"tidewheel dlq {command}")

    async def found(self, outbox: Outbox, namespace: str) -> AsyncIterator[list[DeadLetter]]:
        """Give them, a page at a time; ``Failure`` if one that was named is not there."""
        if self.ids:
            yield [await named(outbox, namespace, one) for one in dict.fromkeys(self.ids)]
            return
        after: Place | None = None
        while True:
            page = await outbox.dead_letters(self._filter(namespace, after))
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = page[-1].place

    def _filter(self, namespace: str, after: Place | None) -> DeadLetterFilter:
        return DeadLetterFilter(
            namespace=namespace, run_id=self.run_id, workflow=self.workflow, limit=PAGE, after=after
        )


def parse_id(text: str) -> tuple[str, int]:
    """Return the run and the first event that an id names."""
    run_id, separator, seq = text.rpartition("@")
    if not separator or not run_id or not (seq.isascii() and seq.isdigit()) or len(seq) > 18:  # noqa: PLR2004 - of a bigint
        message = f"{text!r} is no dead letter; it looks like order-42@3, as `tidewheel dlq list` shows it"
        raise Failure.invalid(message)
    return check_any_run_id(run_id), int(seq)


async def named(outbox: Outbox, namespace: str, text: str) -> DeadLetter:
    """Return the dead letter called *text*."""
    run_id, seq = parse_id(text)
    for letter in await outbox.dead_letters(DeadLetterFilter(namespace=namespace, run_id=run_id, limit=PAGE)):
        if letter.place.first_seq == seq:
            return letter
    message = f"there is no dead letter {text} in namespace {namespace}"
    raise Failure.not_found(message, "`tidewheel dlq list` shows those that there are")
