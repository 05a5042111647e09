"""What the runs of the shop come to, and what their bodies must have done: worked out without the product.

A run is named after its workflow and a number, which is also its input: whoever knows the name knows what is
to be expected.
"""

from __future__ import annotations

from typing import Any

#: One in so many runs is an ``order``, which uses every verb; the others are small.
ORDER_EVERY = 4
#: The signal that each run waits for.
PAID = "paid"


def run_id_of(number: int) -> str:
    """Return the name of the run with this number."""
    return f"{workflow_of(number)}-{number:06d}"


def workflow_of(number: int) -> str:
    """Return the workflow of the run with this number."""
    return "order" if number % ORDER_EVERY == 0 else "errand"


def number_of(run_id: str) -> int:
    """Return the number of a run, or of the run that a child belongs to."""
    return int(run_id.partition(":")[0].rpartition("-")[2])


def payment_of(number: int) -> dict[str, Any]:
    """Return what the signal brings."""
    return {"paid": number * 7}


def result_of(run_id: str) -> Any:
    """Return what a run comes to: a root run, or the child of an order."""
    number = number_of(run_id)
    if ":" in run_id:
        return {"parcel": number + 4}
    if run_id.startswith("errand-"):
        return {"price": number + 1, "reserved": number + 2, "paid": number * 7}
    return {
        "price": number + 1,
        "reserved": number + 2,
        "sides": [number + 3, {"parcel": number + 4}],
        "joined": [number + 5, number + 6],
        "paid": number * 7,
        "booked": number + 8,
    }


def bodies_of(run_id: str) -> set[str]:
    """Return the bodies that a root run, with its child, has to have executed."""
    if run_id.startswith("errand-"):
        return {"price", "reserve"}
    return {"price", "reserve", "weigh", "wrap", "stamp", "label", "book"}


def child_of(run_id: str) -> str | None:
    """Return the id of the child that a root run has, if it has one."""
    return f"{run_id}:3" if run_id.startswith("order-") else None
