"""One visit of the doctor: everything is looked at once, and told at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from tidewheel.broker.errors import BrokerUnavailable
from tidewheel.cli import logs, output
from tidewheel.cli.connecting import Link, Where, linked
from tidewheel.cli.doctor import services
from tidewheel.cli.doctor.findings import Report
from tidewheel.cli.doctor.rounds import Rounds
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.listing import every_run
from tidewheel.cli.live_line import LiveLine
from tidewheel.cli.timeline.text import counted
from tidewheel.cli.verify import breaches_of
from tidewheel.store.errors import CommitUnknown, StoreUnavailable
from tidewheel.workers.lifeline import is_gone


def run(where: Where, *, fix: bool, deep: bool, as_json: bool) -> ExitCode:
    """Look at everything, and print what was found."""
    report = Report()
    with logs.of_a_command(as_json=as_json):
        try:
            reachable = asyncio.run(_visit(where, report, fix=fix, deep=deep, as_json=as_json))
        except (StoreUnavailable, CommitUnknown) as problem:
            advice = "what is not listed here was not looked at; --store and TIDEWHEEL_STORE say where it is"
            report.find("store", str(problem), advice)
            reachable = False
    if as_json:
        output.emit_json(report.to_json())
    else:
        for line in report.lines():
            output.emit(line)
    if not reachable:
        return ExitCode.UNREACHABLE
    return ExitCode.FINDING if report.findings else ExitCode.OK


async def _visit(where: Where, report: Report, *, fix: bool, deep: bool, as_json: bool) -> bool:
    """Look at everything; return whether the store can be written and the broker be reached."""
    async with linked(where) as link:
        with LiveLine(wanted=not as_json) as line:
            await services.look_at_store(link, report)
            writable = await services.look_at_writing(link, report)
            reachable = await _look_at_broker(link, report)
            now, namespace = await link.store.now(), link.settings.namespace
            registered = [worker for worker in await link.store.workers() if worker.namespace == namespace]
            alive = [worker for worker in registered if worker.alive_until > now and not is_gone(worker)]
            rounds = Rounds(link, report, alive, registered, now, fix=fix and writable)
            async for record in every_run(link.store, namespace, open_only=True):
                await rounds.look_at(record)
                line.show(f"{counted(rounds.open, 'open run')} looked at")
            rounds.sum_up()
            services.look_at_workers(alive, registered, rounds.open, now, report)
            if reachable:
                await services.look_at_dead_letters(link, rounds.queues, report)
            await services.look_at_events(link, report)
            if deep:
                await _look_at_journals(link, report, line, told=rounds.unreadable)
    return reachable and writable


async def _look_at_broker(link: Link, report: Report) -> bool:
    try:
        await services.look_at_broker(link, report)
    except BrokerUnavailable as problem:
        start = "" if link.settings.broker.startswith("embedded:") else "start it, or "
        advice = f"{start}say where it is: --broker or TIDEWHEEL_BROKER; runs go on slowly without it"
        report.find("broker", str(problem), advice)
        return False
    return True


async def _look_at_journals(link: Link, report: Report, line: LiveLine, *, told: Collection[str]) -> None:
    """Read every journal there is, ended runs too; of the runs in *told* it is known what is wrong."""
    runs = events = 0
    async for record in every_run(link.store, link.settings.namespace):
        count, breaches = await breaches_of(link.store, record.ref)
        runs, events = runs + 1, events + count
        if breaches and record.run_id not in told:
            rules = ", ".join(dict.fromkeys(breach.rule for breach in breaches))
            message = f"the journal of run {record.run_id} breaks {rules}: {breaches[0].message}"
            advice = f"see `tidewheel journal verify {record.run_id}`, and please report it"
            report.find("journals", message, advice, run_id=record.run_id)
        line.show(f"{counted(runs, 'journal')} read")
    report.say("journals", f"{counted(runs, 'journal')}, {counted(events, 'event')} read")
