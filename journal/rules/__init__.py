"""The invariants of a journal, one named function each.

Importing this package registers them all. ``RULES`` lists them family by family.
"""

from tidewheel.journal.rules import (
    continuation,
    control_flow,
    governance,
    join_sets,
    positions,
    side_effects,
    signals,
    structure,
)
from tidewheel.journal.rules.registry import Breach, Rule, in_order

#: Every rule by its id: S, SE, CF, JS, GV, each counted from 1.
RULES: dict[str, Rule] = in_order()

__all__ = [
    "RULES",
    "Breach",
    "Rule",
    "continuation",
    "control_flow",
    "governance",
    "join_sets",
    "positions",
    "side_effects",
    "signals",
    "structure",
]
