"""What the shop keeps of an order; what becomes of it is the run's, ``order-1`` for the first."""

from __future__ import annotations

from django.db import models


class Order(models.Model):  # type: ignore[misc]  # Django has no types of its own
    """What somebody wants to buy, and how far it got, for people to look at."""

    item = models.CharField(max_length=100)
    cents = models.PositiveIntegerField()
    state = models.CharField(max_length=20, default="placed")

    def __str__(self) -> str:
        return f"{self.run_id}: {self.item}, {self.state}"

    @property
    def run_id(self) -> str:
        """The run that fulfils it. One order has one: starting it twice is starting it once."""
        return f"order-{self.pk}"
