"""The one write path: what an append does to the rows, whichever store they are in.

An adapter opens a transaction, makes a ``Ledger`` over its rows, passes each append of the group
through it, and commits. The rules:

1. *Facts and moves.* Facts are written after whatever is there, if ``facts`` allows them. Moves are
   fenced. If the fence has gone, the facts of the append are still written and only its moves are
   dropped: a finished result is never thrown away.
2. *The fence is a token.* Moves name the token they were computed from and leave their own behind.
   Moves that rest on a fact of their append that was refused are dropped too.
3. *Lock, then look.* ``Rows`` gives out what is there now, after the run was locked.
4. *A lost reply to COMMIT says nothing.* The same append again finds its own token.
5. *A refusal is an answer*, not an error: the others of the group are not disturbed.

A commit that leaves something for the run's code to see sets ``wake_at``; moves that have seen
everything clear it. So whoever lands between "read the journal" and "suspend" is not forgotten.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from tidewheel.journal import events as ev
from tidewheel.journal.jsonform import canonical
from tidewheel.store.admission import FREE, Granted, Refused, decide
from tidewheel.store.append import (
    WAKING,
    Admit,
    Append,
    Appended,
    Await,
    Cancelled,
    ChildStart,
    Ended,
    Fact,
    Fate,
    Hint,
    Moves,
    Park,
    Start,
    Strike,
    Unpark,
    Verdict,
)
from tidewheel.store.facts import write_fact
from tidewheel.store.page import HINT_GRACE, Page
from tidewheel.store.records import WAITING, RunRecord, RunRef, StepRecord
from tidewheel.store.rows import Rows
from tidewheel.telemetry.context import TraceContext

#: Clients that can wait for one run by being told; further ones have to look.
REPLY_TO_MAX = 100
#: What may land in a journal without giving the run's code anything to see.
UNSEEN = (ev.InvokeStarted, ev.InvokeRetrying, ev.SignalAccepted, ev.SignalRejected)


class Ledger:
    """The appends of one transaction. A run that several of them concern is one page."""

    def __init__(self, rows: Rows, now: dt.datetime, new_key: Callable[[], bytes]) -> None:
        self._rows = rows
        self._now = now
        self._new_key = new_key
        self._pages: dict[bytes, Page] = {}
        #: The pages that the current append has opened.
        self._touched: list[Page] = []
        self._answer = Appended(run=RunRef("", ""), now=now)
        #: Where in a trace the current append is made.
        self._trace: TraceContext | None = None

    def go_on(self, now: dt.datetime) -> None:
        """The next appends happen *now*; the runs are as this ledger left them."""
        self._now = now
        for page in self._pages.values():
            page.now = now

    def append(self, request: Append) -> Appended:
        """Do what *request* asks, as far as it may be done, and say what became of it."""
        self._answer = Appended(run=request.run, now=self._now)
        self._trace = request.trace
        if request.start is not None:
            self._start(request.run, request.start, request)
            self._flush()
            return self._answer
        page = self._page(self._rows.run(request.run))
        if page is None:
            self._answer.verdicts = [Verdict.UNKNOWN] * len(request.facts)
            self._answer.fate = None if request.moves is None else Fate.STALE
            return self._answer
        answer, run, facts = self._answer, page.run, request.facts
        seq_before = run.last_seq
        if facts:
            answer.verdicts = [write_fact(page, fact) for fact in facts]
            if not run.token:
                self._cancel_unstarted(page, facts)
        if request.moves is not None:
            answer.fate = self._move(page, request.moves, seq_before)
        if facts and answer.fate is not Fate.COMMITTED:
            self._wake_for(page, facts)
        if request.mark is not None:
            self._mark(page, request)
        answer.last_seq = run.last_seq
        self._flush()
        return answer

    def _wake_for(self, page: Page, facts: Sequence[Fact]) -> None:
        """Owe the run a turn for *facts* that no moves have seen, or say again that it is owed one."""
        verdicts = self._answer.verdicts
        if any(
            isinstance(fact, WAKING) and verdict is Verdict.WRITTEN
            for fact, verdict in zip(facts, verdicts, strict=True)
        ):
            self._wake(page)
        if Verdict.DUPLICATE in verdicts:
            self._repeat_hint(page)

    def _flush(self) -> None:
        """Put all rows back: the next append of the transaction may ask for them."""
        for page in self._touched:
            page.flush(self._trace)
        self._touched = []
        if self._trace is not None:
            for hint in self._answer.hints:
                hint.trace = self._trace

    # Starting

    def _start(self, ref: RunRef, start: Start, request: Append) -> None:
        moves = request.moves
        known = self._rows.run(ref)
        if known is None and start.idempotency_key is not None:
            known = self._rows.run_by_idempotency_key(ref.namespace, start.idempotency_key)
        page = self._page(known)
        if page is None:
            grant = self._admission(ref, start)
            if isinstance(grant, Refused):
                self._answer.refused = grant
                self._answer.fate = None if moves is None else Fate.STALE
                return
            page = self._open(ref, start, is_active=moves is not None, grant=grant)
        else:
            self._answer.existed = True
            self._repeat_hint(page)
            self._answer.mismatch = self._differs(page.run, start)
        if isinstance(request.mark, Await):
            self._await(page, request.mark)
        if moves is not None:
            self._answer.fate = self._move_first(page, moves)
        self._answer.run = page.run.ref
        self._answer.last_seq = page.run.last_seq

    def _move_first(self, page: Page, moves: Moves) -> Fate:
        """Let a run that is started here move on; moves of one that was there rest on another start.

        One that is queued has to wait with them: whoever made them loads it once it is admitted.
        """
        if page.run.phase in WAITING:
            return Fate.STALE
        if not self._answer.existed or page.run.token == moves.token:
            return self._move(page, moves, page.run.last_seq)
        return Fate.ENDED if page.run.ended else Fate.STALE

    def _admission(self, ref: RunRef, start: Start) -> Granted | Refused:
        """Say whether a run may begin now. Child runs are not asked about: their parents were."""
        if start.admission != "now":
            return FREE
        load = self._rows.load(ref.namespace, start.queue)
        return FREE if load is None else decide(load)

    def _open(
        self,
        ref: RunRef,
        start: Start,
        parent: RunRecord | None = None,
        *,
        is_active: bool = False,
        grant: Granted = FREE,
    ) -> Page:
        """Begin a run, or queue it; unless it *is_active* already, it is owed an activation."""
        admission = "queued" if grant.place == "queued" else start.admission
        run = RunRecord(
            key=self._new_key(),
            namespace=ref.namespace,
            run_id=ref.run_id,
            workflow=start.workflow,
            version=start.version,
            digest=start.digest,
            queue=start.queue,
            parent_key=None if parent is None else parent.key,
            idempotency_key=start.idempotency_key,
            created_at=self._now,
            updated_at=self._now,
            place="queued" if admission == "queued" else grant.place,
            admit_at=self._now + dt.timedelta(seconds=grant.after_s) if grant.after_s else None,
        )
        page = self._pages[run.key] = Page(self._rows, run, self._now)
        self._touched.append(page)
        trace = self._trace
        page.write(
            ev.ExecutionStarted(
                component_digest=start.digest,
                input=start.input,
                parent_id=None if parent is None else parent.run_id,
                idempotency_key=start.idempotency_key,
                workflow=start.workflow,
                version=start.version,
                now=start.now or self._now,
                admission=admission,
                run_id=ref.run_id,
                traceparent=UNSET if trace is None else trace.traceparent,
                tracestate=UNSET if trace is None else trace.tracestate or UNSET,
            )
        )
        if not is_active:
            self._wake(page)
        return page

    def _differs(self, run: RunRecord, start: Start) -> bool:
        (first,) = self._rows.entries(run.key, 0, 0)
        assert isinstance(first.event, ev.ExecutionStarted)
        same_input = canonical(first.event.input) == canonical(start.input)
        return run.workflow != start.workflow or not same_input

    # Moves

    def _move(self, page: Page, moves: Moves, seq_before: int) -> Fate:
        run = page.run
        if moves.events and run.token == moves.token:
            if run.ended:  # whoever waits for it may not have been told
                self._answer.ended.append(Ended(run=run.ref, last_seq=run.last_seq, reply_to=run.reply_to))
            return Fate.REPEATED
        if run.ended:
            return Fate.ENDED
        if run.token != moves.expected:
            return Fate.STALE
        for verdict in self._answer.verdicts:
            if verdict is not Verdict.WRITTEN:
                return Fate.STALE
        if seq_before != moves.base_seq:
            assert seq_before > moves.base_seq, f"{run.run_id}: its journal has become shorter"
            if any(isinstance(event, ev.ExecutionContinued) for event in moves.events):
                return Fate.STALE  # what landed would be left behind in the old segment
            self._answer.landed = self._rows.entries(run.key, moves.base_seq + 1, seq_before)
        run.strikes = 0
        continues = self._commit(page, moves) if moves.events else False
        if moves.abandoned or moves.wanted:
            self._follow_abandonment(page, moves)
        self._settle_wake(page, moves, continues=continues)
        return Fate.COMMITTED

    def _commit(self, page: Page, moves: Moves) -> bool:
        """Write the moves' events, and what follows from them; tell whether another segment begins."""
        run, continues = page.run, False
        run.token = moves.token
        run.parked, run.parked_reason = None, None
        page.owner = moves.owner
        scheduled: list[tuple[StepRecord, list[Any]]] = []
        for event in moves.events:
            if isinstance(event, ev.InvokeScheduled):
                page.write(event)
                step = page.step(event.promise_id)
                assert step is not None
                scheduled.append((step, event.input))
                if step.owner is not None:
                    run.owner_message = moves.message_id
            elif type(event) in _CLOSING:
                continues = continues or isinstance(event, ev.ExecutionContinued)
                open_ = page.open_steps()
                page.write(event)
                self._close(page, event, open_)
            else:
                page.write(event)
        for step, given in scheduled:
            if step.path in moves.children:
                self._start_child(page, step, moves.children[step.path], given)
            elif step.dispatch == "queued" and not run.ended:
                self._hint_step(run, step)
        return continues

    def _start_child(self, page: Page, step: StepRecord, child: ChildStart, given: list[Any]) -> None:
        if page.step(step.path) is None:
            return  # the segment closed in the same activation
        start = Start(
            workflow=child.workflow,
            version=child.version,
            digest=child.digest,
            queue=child.queue or step.queue,
            input=given,
        )
        self._open(_child_ref(page.run, step.path), start, page.run)
        page.write(ev.InvokeStarted(promise_id=step.path, attempt=1))

    def _settle_wake(self, page: Page, moves: Moves, *, continues: bool) -> None:
        run, landed = page.run, self._answer.landed
        if run.ended_at is not None:
            return
        if (
            continues
            or (landed and any(not isinstance(entry.event, UNSEEN) for entry in landed))
            or (moves.wanted and self._is_wanted_of_others(page, moves))
        ):
            self._wake(page)
        else:
            run.wake_at, run.hints = None, 0

    def _is_wanted_of_others(self, page: Page, moves: Moves) -> bool:
        """Tell whether a step is wanted again whose owner is another worker, which has to hear of it."""
        steps = [page.step(path) for path in moves.wanted]
        return any(
            step is not None and step.state != "parked" and step.owner not in (None, moves.owner)
            for step in steps
        )

    def _follow_abandonment(self, page: Page, moves: Moves) -> None:
        for path in moves.abandoned:
            step = page.step(path)
            if step is None:
                continue
            if step.kind == "workflow":
                self._cancel_child(page.run, path, "its parent gave up on it")
            else:
                step.abandoned = True
                page.set_due(step, None)
                if step.scheduled_seq > moves.base_seq:
                    step.owner = None  # given up with its schedule: nobody begins it
        for path in moves.wanted:
            step = page.step(path)
            if step is None or not step.abandoned:
                continue
            step.abandoned = False
            if step.state == "parked":
                continue  # it waits for an operator, wanted or not
            page.set_due(step, self._now)
            if step.dispatch == "queued":
                self._hint_step(page.run, step)

    # Ends

    def _close(self, page: Page, event: ev.Event, open_: list[StepRecord]) -> None:
        """A segment or a run is over: cancel what it leaves behind, tell who waits for it."""
        for step in open_:
            if step.kind == "workflow":
                self._cancel_child(page.run, step.path, "its parent has ended")
        if isinstance(event, ev.ExecutionContinued):
            return
        run = page.run
        frees_place = run.place == "running"
        run.place = run.admit_at = None
        self._answer.ended.append(
            Ended(
                run=run.ref,
                last_seq=run.last_seq,
                reply_to=run.reply_to,
                event=event,
                frees_place=frees_place,
            )
        )
        parent = None if run.parent_key is None else self._page(self._rows_by_key(run.parent_key))
        if parent is None or parent.run.ended:
            return
        asked = parent.step(run.path)
        if asked is not None and asked.state == "started":
            parent.write(
                ev.InvokeCompleted(promise_id=run.path, result=outcome_of(event, run.run_id), attempt=1)
            )
            self._wake(parent)

    def _cancel_unstarted(self, page: Page, facts: Sequence[Fact]) -> None:
        """End a run that is cancelled before its first activation: no code has run that could be asked."""
        for fact, verdict in zip(facts, self._answer.verdicts, strict=True):
            if isinstance(fact, Cancelled) and verdict is Verdict.WRITTEN:
                cancelled = ev.ExecutionCancelled(reason=fact.reason)
                page.write(cancelled)
                self._close(page, cancelled, [])

    def _cancel_child(self, parent: RunRecord, path: str, reason: str) -> None:
        child = self._page(self._rows.run(_child_ref(parent, path)))
        if child is not None and not child.run.ended and not child.run.cancelling:
            child.write(ev.CancelRequested(reason=reason))
            self._wake(child)

    # Marks

    def _mark(self, page: Page, request: Append) -> None:
        run, mark = page.run, request.mark
        match mark:
            case Await():
                self._await(page, mark)
            case Park() if not run.ended:
                run.parked, run.parked_reason = mark.kind, mark.reason
                run.wake_at, run.hints = None, 0
            case Unpark() if run.parked is not None and not run.ended:
                run.parked, run.parked_reason, run.strikes = None, None, 0
                self._wake(page)
            case Strike() if not run.ended and run.parked is None:
                self._strike(page, mark)
            case Admit() if run.place == "queued" and run.phase in WAITING:
                self._admit(page)
            case _:
                return

    def _admit(self, page: Page) -> None:
        """Let a queued run begin, if its time has come and its queue has room."""
        run = page.run
        load = self._rows.load(run.namespace, run.queue)
        if (run.admit_at is not None and run.admit_at > self._now) or (load is not None and load.is_full):
            return
        run.place, run.admit_at = None if load is None else "running", None
        page.write(ev.RunAdmitted())
        self._wake(page)
        self._answer.admitted = True

    def _await(self, page: Page, mark: Await) -> None:
        run = page.run
        if mark.reply_to not in run.reply_to and len(run.reply_to) < REPLY_TO_MAX:
            run.reply_to = (*run.reply_to, mark.reply_to)
        if run.ended:
            self._answer.ended.append(Ended(run=run.ref, last_seq=run.last_seq, reply_to=(mark.reply_to,)))

    def _strike(self, page: Page, mark: Strike) -> None:
        run = page.run
        if run.strikes and not mark.alone:
            return  # it is being tried alone: further messages that died before say nothing new
        run.strikes += 1
        self._answer.strikes = run.strikes
        if mark.alone and run.strikes >= mark.limit:
            run.parked, run.parked_reason = "quarantine", mark.reason
            run.wake_at, run.hints = None, 0
            return
        run.wake_at, run.hints = self._now + HINT_GRACE, 0
        self._answer.hints.append(Hint(run=run.ref, queue=run.queue, alone=True))

    # Waking

    def _wake(self, page: Page) -> None:
        """Owe the run an activation. One hint that is under way is enough for any number of facts."""
        run = page.run
        if run.ended or run.parked is not None or run.phase in WAITING:
            return
        is_hinted = run.wake_at is not None and run.hints == 0 and run.wake_at > self._now
        if not is_hinted:
            run.wake_at, run.hints = self._now + HINT_GRACE, 0
            self._hint(run)

    def _repeat_hint(self, page: Page) -> None:
        """Whoever asks again may not have come to publish the hint of the first time."""
        run = page.run
        if run.wake_at is not None and not self._answer.hints:
            self._hint(run)

    def _hint(self, run: RunRecord) -> None:
        """Have the run activated: alone, if workers died with it and it has not got on since."""
        self._answer.hints.append(Hint(run=run.ref, queue=run.queue, alone=run.strikes > 0))

    def _hint_step(self, run: RunRecord, step: StepRecord) -> None:
        self._answer.hints.append(
            Hint(run=run.ref, queue=step.queue, path=step.path, attempt=step.attempt + 1)
        )

    # Pages

    def _page(self, run: RunRecord | None) -> Page | None:
        if run is None:
            return None
        page = self._pages.get(run.key)
        if page is None:
            page = self._pages[run.key] = Page(self._rows, run, self._now)
        if page not in self._touched:
            self._touched.append(page)
        return page

    def _rows_by_key(self, key: bytes) -> RunRecord | None:
        page = self._pages.get(key)
        return self._rows.run_by_key(key) if page is None else page.run


_CLOSING = frozenset((*ev.TERMINAL, ev.ExecutionContinued))


def outcome_of(event: ev.Event, run_id: str) -> ev.Result:
    """Return how a run that ended with *event* looks to its parent."""
    match event:
        case ev.ExecutionCompleted(result=result):
            return result
        case ev.ExecutionFailed(error=error):
            return ev.Result(error=error)
        case ev.ExecutionCancelled(reason=reason):
            message = f"child run {run_id} was cancelled" + (f": {reason}" if reason else "")
            return ev.Result(error=ev.Error(type="RunCancelled", message=message))
        case _:
            raise AssertionError(event)


def _child_ref(parent: RunRecord, path: str) -> RunRef:
    root = parent.run_id.partition(":")[0]
    return RunRef(parent.namespace, f"{root}:{path}")
