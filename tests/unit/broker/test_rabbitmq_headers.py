"""What RabbitMQ adds to the headers of a message becomes our words."""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel.broker.message import KEY, ORIGIN, REASON
from tidewheel.broker.rabbitmq.headers import CARRIED, read_headers


def death(reason: str, queue: str, key: str | None = None) -> dict[str, Any]:
    """Return one entry of RabbitMQ's list of deaths."""
    return {"reason": reason, "queue": queue, "count": 1, "exchange": "", "routing-keys": [key or queue]}


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        ({}, {}),
        ({"a": "b", "n": 7}, {"a": "b", "n": "7"}),
        (
            {"x-death": [death("delivery_limit", "work")], "x-first-death-reason": "delivery_limit"},
            {REASON: "delivery-limit", ORIGIN: "work"},
        ),
        ({"x-death": [death("expired", "sticky")]}, {REASON: "expired", ORIGIN: "sticky"}),
        ({"x-death": [death("rejected", "work")]}, {REASON: "rejected", ORIGIN: "work"}),
        (
            {"x-death": [death("delivery_limit", "work"), death("expired", "sticky")], "a": "b"},
            {REASON: "delivery-limit", ORIGIN: "work", "a": "b"},
        ),
        (
            {
                "x-death": [death("expired", "sticky"), death("delivery_limit", "work")],
                "x-last-death-reason": "delivery_limit",
                "x-last-death-queue": "work",
                "x-last-death-exchange": "",
            },
            {REASON: "delivery-limit", ORIGIN: "work"},
        ),
        (
            {"x-death": [death("expired", "q")], REASON: "old", ORIGIN: "old"},
            {REASON: "expired", ORIGIN: "q"},
        ),
        ({REASON: "not a work item", ORIGIN: "work"}, {REASON: "not a work item", ORIGIN: "work"}),
        (
            {"x-death": [death("expired", "other", "no"), death("rejected", "q", "start")]}
            | {"x-last-death-reason": "rejected", "x-last-death-queue": "q"},
            {REASON: "rejected", ORIGIN: "q", KEY: "start"},
        ),
        (
            {"x-death": [death("rejected", "q", "start")], KEY: "first"},
            {REASON: "rejected", ORIGIN: "q", KEY: "first"},
        ),
        ({"x-death": [{"reason": "rejected", "queue": "q"}]}, {REASON: "rejected", ORIGIN: "q"}),
        ({"x-death": [{"reason": "rejected", "routing-keys": 1}]}, {REASON: "rejected", ORIGIN: ""}),
        ({"x-death": "nonsense"}, {}),
        ({"x-death": []}, {}),
    ],
)
def test_the_last_death_is_the_reason(raw: dict[str, Any], headers: dict[str, str]) -> None:
    """The latest counts, however RabbitMQ's version says which that is; nothing of RabbitMQ's is left."""
    assert read_headers(raw, redelivered=False)[0] == headers


@pytest.mark.parametrize(
    ("raw", "redelivered", "earlier"),
    [
        ({}, False, 0),
        ({}, True, 1),
        ({"x-delivery-count": 2}, True, 2),
        ({"x-delivery-count": 0}, False, 0),
        ({CARRIED: "2"}, False, 2),
        ({CARRIED: "2", "x-delivery-count": 1}, True, 3),
        ({CARRIED: "many", "x-delivery-count": -5}, False, 0),
    ],
)
def test_earlier_deliveries_are_counted(raw: dict[str, Any], redelivered: bool, earlier: int) -> None:
    """By the queue, with what was carried over from before; a classic queue only says that it was."""
    headers, count = read_headers(raw, redelivered=redelivered)

    assert count == earlier
    assert not headers
