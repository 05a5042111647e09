"""An order through a crash: a worker is killed in the middle of a step, and nobody is charged twice.

``make run`` runs this. It starts real worker processes on the embedded default (two SQLite files in a
temporary folder), kills one of them with ``kill -9`` while it ships an order, lets another take over,
and checks what came of it. The order is ``examples/order.py``; this file knows it only by name, as a
service that starts orders would. ``--interactive`` asks you for the approval.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tidewheel import SyncClient, SyncHandle, TidewheelError
from tidewheel.cli.timeline import draw
from tidewheel.journal.events import Entry, InvokeCompleted, InvokeScheduled, InvokeStarted
from tidewheel.testing import verify

ORDER = {"id": "1001", "item": "kettle", "quantity": 2, "cents": 7800}
RUN = "order-1001"
APP = Path(__file__).with_name("order.py")
APPROVED_AFTER_S = 2.0
CARRIER_TAKES_S = 3.0
#: Nothing here should take longer; what does, ends the story.
PATIENCE_S = 20.0
COLUMNS_MAX = 100


class Unexpected(Exception):
    """The story did not go as it should."""


# Telling.


class Terminal:
    """Prints numbered steps: with colours on a terminal, as plain text elsewhere."""

    def __init__(self) -> None:
        self._steps = 0
        self.has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self.columns = min(shutil.get_terminal_size((COLUMNS_MAX, 24)).columns, COLUMNS_MAX)

    def step(self, text: str) -> None:
        """Announce the next step."""
        self._steps += 1
        print("\n" + self._in("1", f"{self._steps:2}. {text}"), flush=True)

    def say(self, text: str, style: str = "") -> None:
        """Say something about the step."""
        print(self._in(style, f"    {text}"), flush=True)

    def chart(self, journal: list[Entry]) -> None:
        """Draw a journal as bars over time."""
        plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        for line in draw(
            journal, width=self.columns - 4, run_id=RUN, colour=self.has_colours, ascii_only=plain
        ):
            print(f"    {line}".rstrip(), flush=True)

    def _in(self, style: str, text: str) -> str:
        return f"\033[{style}m{text}\033[0m" if self.has_colours and style else text


# The processes, and what they did.


class Workers:
    """Worker processes over the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{quote(str(folder / 'tidewheel.db'))}"
        self.ledger = folder / "ledger.txt"
        self._log = folder / "workers.log"
        self._all: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Start ``tidewheel dev examples/order.py:app``."""
        # What your shell exports must not change the story.
        own = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}
        own |= {"ORDERS_LEDGER": str(self.ledger), "ORDERS_CARRIER_TAKES": str(CARRIER_TAKES_S)}
        tidewheel = [sys.executable, "-m", "tidewheel.cli.main"]
        command = [*tidewheel, "dev", f"{APP}:app", "--store", self.store, "--broker", "embedded://"]
        with self._log.open("ab") as log:
            worker = subprocess.Popen(  # noqa: S603 - our own command
                command, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._all.append(worker)
        return worker

    def kill(self) -> None:
        """End every worker at once, whatever it is doing."""
        for worker in self._all:
            worker.kill()
            worker.wait()

    def done(self) -> Counter[str]:
        """How often each thing was done in the world: one line of the ledger each."""
        return Counter(line.split()[0] for line in self._lines())

    def parcels(self) -> int:
        """How many parcels the carrier knows: the same key is the same parcel."""
        return len({line for line in self._lines() if line.startswith("ship ")})

    def wait_until(self, what: str, happened: Callable[[], bool]) -> None:
        """Wait for something that the newest worker should bring about."""
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            if self._all and self._all[-1].poll() is not None:
                raise Unexpected(f"the worker ended by itself:\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise Unexpected(f"{what}: not within {PATIENCE_S:g} s\n{self._last_words()}")
            time.sleep(0.05)

    def _lines(self) -> list[str]:
        return self.ledger.read_text("utf-8").splitlines() if self.ledger.exists() else []

    def _last_words(self) -> str:
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-20:])


def has(journal: list[Entry], step: str, kind: type[InvokeStarted | InvokeCompleted]) -> bool:
    """Tell whether *journal* has an event of this *kind* about a step."""
    paths = {
        entry.event.promise_id
        for entry in journal
        if isinstance(entry.event, InvokeScheduled) and entry.event.function_name == step
    }
    return any(isinstance(entry.event, kind) and entry.event.promise_id in paths for entry in journal)


# The story.


def tell(terminal: Terminal, workers: Workers, order: SyncHandle[Any], *, interactive: bool) -> bool:
    """Take the order to its end, through a crash if it is approved; tell whether it was."""
    first = workers.start()
    terminal.step(f"A worker starts (tidewheel dev): process {first.pid}.")
    terminal.say("It reserves the items and charges the card.")
    workers.wait_until("the payment", lambda: has(order.journal(), "charge", InvokeCompleted))
    terminal.say(f"The payment is in the journal. Charges in the ledger: {workers.done()['charge']}.")

    terminal.step("The order waits for a person.")
    is_approved = approved(terminal, interactive=interactive)
    order.signal("approval", {"approved": is_approved, "by": "you" if interactive else "desk 3"})
    if is_approved:
        crash(terminal, workers, order, first)
    else:
        terminal.step("Refused: what was done is undone, the newest first.")
        ended(workers, order)
        terminal.say(f"In the ledger: {', '.join(workers.done())}.")
    return is_approved


def crash(
    terminal: Terminal, workers: Workers, order: SyncHandle[Any], first: subprocess.Popen[bytes]
) -> None:
    """Kill the worker that ships the order, and let another one take over."""
    terminal.step(f"Approved: worker {first.pid} calls the carrier, which takes {CARRIER_TAKES_S:g} seconds.")
    workers.wait_until("the start of the shipping", lambda: has(order.journal(), "ship", InvokeStarted))
    workers.kill()
    terminal.step(f"kill -9 of worker {first.pid} while shipping is being executed.")
    terminal.say("Gone: the process, the coroutine, its variables.", "31")
    terminal.say(f"Left: the journal, {len(order.journal())} events. The order is {order.status()}.", "31")

    second = workers.start()
    terminal.step(f"A new worker takes over: process {second.pid}.")
    workers.wait_until("the second call of the carrier", lambda: workers.done()["ship"] > 1)
    done = workers.done()
    terminal.say("It ran the code again from the top, with the results that the journal has:")
    terminal.say(f"payment is not charged again (charges in the ledger: {done['charge']}).", "32")
    terminal.say(f"Shipping had not ended, so it is executed again (calls of the carrier: {done['ship']}),")
    terminal.say("with the same idempotency key: for the carrier it is the same parcel.")

    told = ended(workers, order)["told"]
    terminal.step(f"Shipped. {len(told)} notifications went out at once:")
    for message in told:
        terminal.say(message)


def ended(workers: Workers, order: SyncHandle[Any]) -> dict[str, Any]:
    """Wait until the order has ended, and return its outcome."""
    workers.wait_until("the end of the order", lambda: order.status() not in ("PENDING", "RUNNING"))
    outcome: dict[str, Any] = order.result(timeout=PATIENCE_S)
    return outcome


def approved(terminal: Terminal, *, interactive: bool) -> bool:
    """Return what a person says; without one, it is yes after a moment."""
    if not interactive:
        time.sleep(APPROVED_AFTER_S)
        terminal.say(f"Nobody is asked here: desk 3 says yes after {APPROVED_AFTER_S:g} seconds.")
        return True
    try:
        answer = input("    Do you approve it? [Y/n] ")
    except EOFError:
        answer = ""
    print(flush=True)
    return not answer.strip().lower().startswith("n")


# Checking.


@dataclass(frozen=True)
class Check:
    """Something that must hold at the end."""

    what: str
    expected: Any
    found: Any

    @property
    def holds(self) -> bool:
        """Whether it does."""
        return bool(self.expected == self.found)


def checks(
    result: dict[str, Any], journal: list[Entry], done: Counter[str], *, parcels: int, approved: bool
) -> list[Check]:
    """Compare what happened with what should have, for an order that was approved or refused."""
    return [
        Check("how the order ended", "shipped" if approved else "cancelled", result["status"]),
        Check("times the card was charged", 1, done["charge"]),
        Check("times the items were reserved", 1, done["reserve"]),
        Check("times the money was given back", 0 if approved else 1, done["refund"]),
        Check("calls of the carrier, the killed one among them", 2 if approved else 0, done["ship"]),
        Check("parcels the carrier knows, by their keys", 1 if approved else 0, parcels),
        Check("notifications", 3 if approved else 0, len(result["told"])),
        Check("rules that the journal breaks", 0, len(verify(journal))),
    ]


def summary(terminal: Terminal, found: list[Check]) -> None:
    """Show what was checked; raise ``Unexpected`` where something does not hold."""
    terminal.step("What was checked.")
    for check in found:
        verdict = "ok" if check.holds else f"WRONG, expected {check.expected}"
        terminal.say(f"{check.what:50}{check.found!s:>10}  {verdict}", "32" if check.holds else "31")
    wrong = [f"{check.what}: {check.found}, not {check.expected}" for check in found if not check.holds]
    if wrong:
        raise Unexpected("; ".join(wrong))


@contextmanager
def scene() -> Iterator[tuple[Workers, SyncHandle[Any]]]:
    """Give workers and an order in a folder of their own; whatever happens, nothing is left of them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidewheel-")))
        workers = Workers(folder)
        stack.callback(workers.kill)
        client = stack.enter_context(
            SyncClient.connect(store=workers.store, broker="embedded://", namespace="default")
        )
        yield workers, client.start("fulfil", ORDER, run_id=RUN)


def play(terminal: Terminal, *, interactive: bool) -> None:
    """Tell the story and check it."""
    terminal.step("An order comes in: 2 kettles for 78.00. It is kept in a journal, a SQLite file.")
    with scene() as (workers, order):
        is_approved = tell(terminal, workers, order, interactive=interactive)
        result, journal = ended(workers, order), order.journal()
        terminal.step("The journal of the order, drawn.")
        terminal.chart(journal)
        done, parcels = workers.done(), workers.parcels()
        summary(terminal, checks(result, journal, done, parcels=parcels, approved=is_approved))


def main() -> int:
    """Return 0 if the story went as it should, 1 if not."""
    options = argparse.ArgumentParser(description="An order through a crash.")
    options.add_argument("--interactive", action="store_true", help="ask for the approval here")
    interactive = options.parse_args().interactive
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that nothing is left running then either
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))
    began = time.monotonic()
    try:
        play(Terminal(), interactive=interactive)
    except (Unexpected, TidewheelError, TimeoutError) as problem:
        print(f"\nFAILED: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; nothing was left running", file=sys.stderr)
        return 130
    took_s = time.monotonic() - began
    print(f"\nDone in {took_s:.0f} s. To do it yourself: the top of examples/order.py has the commands.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
