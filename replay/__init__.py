"""Replay: ordinary asyncio code run against a journal, with the same outcome every time."""
