"""What a checker says: each thing that is wrong, and how much there was to look at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, where, and by which rule."""

    rule: str
    run_id: str
    run_seq: int | None
    what: str

    def __str__(self) -> str:
        where = "" if self.run_seq is None else f" at {self.run_seq}"
        return f"{self.rule}: {self.run_id}{where}: {self.what}"


@dataclass(slots=True)
class Report:
    """What was found, and how much there was to look at."""

    findings: list[Finding] = field(default_factory=list)
    runs: int = 0
    events: int = 0
    executions: int = 0
    #: Steps whose body was executed more than once, by the name of the body.
    repeated: Counter[str] = field(default_factory=Counter)
