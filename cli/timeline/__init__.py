"""A run's journal drawn for a terminal: a chart of what took how long, and a live line."""

from tidewheel.cli.timeline.drawing import ROWS_MAX, draw
from tidewheel.cli.timeline.progress import RunProgress, progress_line

__all__ = ["ROWS_MAX", "RunProgress", "draw", "progress_line"]
