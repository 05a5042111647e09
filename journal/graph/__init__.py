"""A recorded run as a chart: what the code was shown, and what it then asked for.

The chart says what the journal says: it reads no code and judges nothing.
"""

from tidewheel.journal.graph.drawing import NODES_MAX, label, mermaid

__all__ = ["NODES_MAX", "label", "mermaid"]
