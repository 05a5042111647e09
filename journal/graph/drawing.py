"""A recorded run as the text of a Mermaid flowchart.

An arrow leads from what an activation showed to what the code asked for on seeing it; a
dotted one from what was shown earlier, when the code asked for nothing yet. Steps of a join
set are framed. Viewers refuse large charts, so of a long run the first and the last nodes
are drawn, and one node between them says how many were left out. Any text is safe in a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tidewheel.journal.events import Entry
from tidewheel.journal.graph.reading import Group, Node, RecordedRun

#: Nodes that are drawn; with their arrows they stay below the 500 arrows that viewers accept.
NODES_MAX: Final = 200
#: Characters of each line in a label.
SHOWN_MAX: Final = 48
ARROW: Final = "-->"
DOTTED: Final = "-.->"
#: Stands for all nodes that are left out.
MORE: Final = "more"

#: What a node is drawn as: text before and after its label.
SHAPES: Final[dict[str, tuple[str, str]]] = {
    "border": ('(["', '"])'),
    "step": ('["', '"]'),
    "child": ('[["', '"]]'),
    "timer": ('("', '")'),
    "signal": ('>"', '"]'),
    "promise": ('[/"', '"\\]'),
    "cancel": ('{{"', '"}}'),
    # A step that did not simply succeed has another shape, not only another colour.
    "step retried": ('[/"', '"/]'),
    "step failed": ('{{"', '"}}'),
}
CLASSES: Final = (
    "classDef done fill:#e6f4ea,stroke:#1e8e3e,color:#0d3a1a",
    "classDef retried fill:#fef7e0,stroke:#b06000,color:#4a2a00",
    "classDef failed fill:#fce8e6,stroke:#c5221f,stroke-width:3px,color:#5c0f0d",
    "classDef pending fill:#e8f0fe,stroke:#1967d2,stroke-dasharray:4 3,color:#0b2a5b",
    "classDef dropped fill:#f1f3f4,stroke:#80868b,stroke-dasharray:4 3,color:#3c4043",
    "classDef joint fill:#80868b,stroke:#80868b",
)
#: All but letters, digits, spaces and the joints of a word: quotes, markup, entities, directives.
_UNSAFE: Final = re.compile(r"(?<=[^\W_])[-_.](?=[^\W_])|(?P<unsafe>[^\w ]|_)")


def mermaid(entries: Iterable[Entry]) -> str:
    """Return the run whose journal is *entries* as a Mermaid flowchart."""
    run = RecordedRun()
    for entry in entries:
        run.take(entry.event)
    run.close()
    lines = ["flowchart TD", *(f"    {line}" for line in _Chart(run).lines())]
    return "\n".join(lines) + "\n"


def label(text: str) -> str:
    """Return *text* as one line that is safe in a quoted label, cut where it is long."""
    plain = "".join(char if char.isprintable() else " " for char in text[: SHOWN_MAX + 1])
    cut = plain if len(plain) <= SHOWN_MAX else plain[: SHOWN_MAX - 3] + "..."
    return _UNSAFE.sub(lambda found: f"#{ord(found[0])};" if found["unsafe"] else found[0], cut)


class _Chart:
    """The lines of a chart, except the first."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        nodes = run.nodes
        half = NODES_MAX // 2
        self._kept = nodes if len(nodes) <= NODES_MAX else [*nodes[:half], *nodes[-half:]]
        self._ids = {node.number: f"n{node.number}" for node in self._kept}

    def lines(self) -> Iterator[str]:
        """Yield nodes, frames, arrows and classes."""
        left_out = len(self._run.nodes) - len(self._kept)
        if left_out:
            yield f"%% {left_out} of {len(self._run.nodes)} nodes are left out"
            yield f'{MORE}["{label(f"{left_out:,} more are left out")}"]:::dropped'
        groups: dict[Group, list[Node]] = {}
        for node in self._kept:
            if node.group is None:
                yield _node(node)
            else:
                groups.setdefault(node.group, []).append(node)
        for group, members in groups.items():
            yield from _frame(group, members)
        yield from self._arrows()
        yield from CLASSES

    def _arrows(self) -> Iterator[str]:
        drawn: set[tuple[str, str]] = set()
        for number, activation in enumerate(self._run.activations):
            origins = dict.fromkeys(map(self._id, activation.shown), ARROW)
            for node in activation.earlier:
                origins.setdefault(self._id(node), DOTTED)
            asked = list(dict.fromkeys(map(self._id, activation.asked)))
            targets = asked
            if len(origins) > 1 and len(asked) > 1:  # through a joint: m + n arrows, not m times n
                joint = f"j{number}"
                targets = [joint]
                yield f'{joint}((" ")):::joint'
            for origin, arrow in origins.items():
                for target in targets:
                    if origin != target and (origin, target) not in drawn:
                        drawn.add((origin, target))
                        yield f"{origin} {arrow} {target}"
            if targets is not asked:
                yield from (f"{targets[0]} {ARROW} {target}" for target in asked)

    def _id(self, node: Node) -> str:
        return self._ids.get(node.number, MORE)


def _node(node: Node) -> str:
    place = [f"path {label(node.path)}"] if node.path else []
    if node.attempts:
        place.append("1 attempt" if node.attempts == 1 else f"{node.attempts} attempts")
    parts = (label(node.name), ", ".join([*place, *node.notes]), label(node.says))
    text = "<br/>".join(part for part in parts if part)
    opening, closing = SHAPES.get(f"{node.kind} {node.look}", SHAPES[node.kind])
    return f"n{node.number}{opening}{text}{closing}:::{node.look}"


def _frame(group: Group, members: list[Node]) -> Iterator[str]:
    left_out = len(group.members) - len(members)
    title = f"join set {group.path}" + (f", {left_out:,} more are left out" if left_out else "")
    yield f'subgraph set{members[0].number}["{label(title)}"]'
    yield from (f"    {_node(node)}" for node in members)
    yield "end"
