"""The test kit: run workflows in memory with a virtual clock, replay and verify journals."""

from tidewheel.testing.crashes import crash_everywhere
from tidewheel.testing.environment import Environment, Stuck
from tidewheel.testing.handle import Handle, MemoryClient
from tidewheel.testing.replaying import ReplayReport, dump_journal, load_journal, replay, verify

__all__ = [
    "Environment",
    "Handle",
    "MemoryClient",
    "ReplayReport",
    "Stuck",
    "crash_everywhere",
    "dump_journal",
    "load_journal",
    "replay",
    "verify",
]
