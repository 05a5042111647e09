"""What the determinism check says: findings with their place, and the comments that silence them."""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import Final

from tidewheel.sdk.lint.rules import Level, Rule
from tidewheel.sdk.source import FunctionSource

_IGNORE: Final = re.compile(r"#\s*tidewheel:\s*ignore(?:\[(?P<rules>[^\]]*)\])?")
_SHOWN_MAX: Final = 60


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place in a workflow that may not replay; ``line`` and ``column`` count from 1."""

    rule: str
    level: Level
    path: str
    line: int
    column: int
    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.level}[{self.rule}] {self.message}"


class Report:
    """The findings of one workflow, collected in any order."""

    def __init__(self, source: FunctionSource) -> None:
        self._source = source
        self._findings: list[Finding] = []

    def add(self, node: ast.expr | ast.excepthandler, rule: Rule, what: str) -> None:
        """Add that *what*, at *node*, breaks *rule*, unless a comment on its lines says not to."""
        if self._silenced(node, rule):
            return
        before = self._source.lines[node.lineno - 1].encode()[: node.col_offset]
        hint = rule.hint.format(name=what)
        finding = Finding(
            rule=rule.name,
            level=rule.level,
            path=self._source.path,
            line=node.lineno,
            column=len(before.decode()) + 1,  # ast counts bytes, editors characters
            message=f"{what} {rule.why}: {hint}",
            hint=hint,
        )
        self._findings.append(finding)

    def findings(self) -> list[Finding]:
        """Return what was found, in source order."""
        return sorted(self._findings, key=lambda finding: (finding.line, finding.column, finding.rule))

    def _silenced(self, node: ast.expr | ast.excepthandler, rule: Rule) -> bool:
        # A handler's lines are those of its whole body; only its first is meant.
        last = (node.end_lineno or node.lineno) if isinstance(node, ast.expr) else node.lineno
        for line in self._source.lines[node.lineno - 1 : last]:
            if (ignored := _IGNORE.search(line)) is not None:
                named = ignored["rules"]
                if named is None or rule.name in [name.strip() for name in named.split(",")]:
                    return True
        return False


def shown(node: ast.expr) -> str:
    """Return the source of *node*, cut to what fits a message."""
    text = ast.unparse(node)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
