"""Leaves the tests of the examples out where there are none: an unpacked sdist has no examples."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OF_PAGES = "test_documentation.py"

collect_ignore = (
    []
    if (ROOT / "examples").is_dir()
    else [path.name for path in Path(__file__).parent.glob("test_*.py") if path.name != OF_PAGES]
)
