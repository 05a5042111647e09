"""What the doctor says: the checks that were made, and what they found."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tidewheel.cli.timeline.text import counted

Check: TypeAlias = Literal[
    "store",
    "clock",
    "broker",
    "workers",
    "wake-ups",
    "due",
    "hints",
    "parked",
    "steps",
    "dead letters",
    "events",
    "journals",
]
#: In the order they are told.
CHECKS: Final[tuple[Check, ...]] = (
    "store",
    "clock",
    "broker",
    "workers",
    "wake-ups",
    "due",
    "hints",
    "parked",
    "steps",
    "dead letters",
    "events",
    "journals",
)
#: Findings of one check that people are shown; programs get all.
SHOWN_MAX: Final = 20


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be, and what to do about it."""

    check: Check
    message: str
    advice: str
    run_id: str | None = None
    #: All of them, where it is about several.
    run_ids: tuple[str, ...] | None = None
    fixed: bool = False


class Report(msgspec.Struct, kw_only=True):
    """All that was looked at, in words, and all that was found."""

    said: dict[Check, str] = {}
    findings: list[Finding] = []

    def say(self, check: Check, text: str) -> None:
        """Note what *check* has seen."""
        self.said[check] = text

    def find(
        self,
        check: Check,
        message: str,
        advice: str,
        *,
        run_id: str | None = None,
        run_ids: tuple[str, ...] | None = None,
        fixed: bool = False,
    ) -> None:
        """Note something that is wrong."""
        finding = Finding(
            check=check, message=message, advice=advice, run_id=run_id, run_ids=run_ids, fixed=fixed
        )
        self.findings.append(finding)

    def to_json(self) -> dict[str, Any]:
        """Return the report as programs read it."""
        found = Counter(finding.check for finding in self.findings)
        return {
            "ok": not self.findings,
            "checks": [
                {"check": check, "ok": not found[check], "says": self.said.get(check, "")}
                for check in CHECKS
                if check in self.said or found[check]
            ],
            "findings": [
                {key: value for key, value in msgspec.structs.asdict(finding).items() if value is not None}
                for finding in self.findings
            ],
        }

    def lines(self) -> list[str]:
        """Return the report as people read it."""
        lines: list[str] = []
        for check in CHECKS:
            found = [finding for finding in self.findings if finding.check == check]
            if check not in self.said and not found:
                continue
            mark = "found" if found else "ok"
            said = self.said.get(check) or counted(len(found), "finding")
            lines.append(f"{mark:<5}  {check:<12}  {said}")
            for finding in found[:SHOWN_MAX]:
                lines.append(f"         - {finding.message}{' (mended)' if finding.fixed else ''}")
                if not finding.fixed:
                    lines.append(f"           {finding.advice}")
            if len(found) > SHOWN_MAX:
                lines.append(f"         and {len(found) - SHOWN_MAX:,} more; --json lists all")
        total = len(self.findings)
        mended = sum(finding.fixed for finding in self.findings)
        tail = f", {mended:,} mended" if mended else ""
        lines.append(f"{counted(total, 'thing')} found{tail}" if total else "nothing found")
        return lines
