"""A shop whose sales show up on a dashboard: a table of your own, kept from the events of runs.

Shows a projection: a frozen dataclass whose instances are the rows of a table. Each public event is read
once, whatever is killed in between: the row that it changes is written in the same transaction as the note
that it was read. Try it, in two terminals::

    tidewheel dev examples/sales.py:app

    tidewheel run start sell --input '["tea", 2, 350]' --wait
    sqlite3 tidewheel.db 'SELECT * FROM sales_by_item'

On Postgres it is the same table, in the same database.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidewheel import App, Context, PublicEvent

app = App("sales")


class SoldOut(Exception):
    """There is nothing left of it."""


@app.task
async def take_from_shelf(item: str, count: int) -> None:
    """Take things from the shelf."""
    if item == "gold":
        message = f"no {item} left for {count}"
        raise SoldOut(message)


@app.task
async def charge(count: int, price_cents: int) -> int:
    """Charge the customer, and return how much it was."""
    return count * price_cents


@app.workflow
async def sell(ctx: Context, item: str, count: int, price_cents: int) -> dict[str, int | str]:
    """Sell something; what it returns is what the dashboard reads."""
    await ctx.invoke(take_from_shelf, item, count)
    paid_cents = await ctx.invoke(charge, count, price_cents)
    return {"item": item, "count": count, "paid_cents": paid_cents}


@app.projection
@dataclass(frozen=True)
class SalesByItem:
    """What was sold of an item: the table ``sales_by_item``."""

    item: str
    orders: int = 0
    sold: int = 0
    revenue_cents: int = 0

    @classmethod
    def key(cls, event: PublicEvent) -> str | None:
        """Return the item that a sale was about; other events are not about sales."""
        if event.workflow == "sell" and event.event_type == "RunCompleted":
            item: str = event.data["result"]["item"]
            return item
        return None

    def reduce(self, event: PublicEvent) -> SalesByItem:
        """Add a sale."""
        sale = event.data["result"]
        return replace(
            self,
            orders=self.orders + 1,
            sold=self.sold + sale["count"],
            revenue_cents=self.revenue_cents + sale["paid_cents"],
        )


@app.projection
@dataclass(frozen=True)
class FailedSales:
    """Which sales failed, and why: a row for each run."""

    run_id: str
    reason: str = ""

    @classmethod
    def key(cls, event: PublicEvent) -> str | None:
        """Return the run, if it is a sale that failed."""
        return event.run_id if event.workflow == "sell" and event.event_type == "RunFailed" else None

    def reduce(self, event: PublicEvent) -> FailedSales:
        """Note why."""
        return replace(self, reason=event.data["error"]["message"])
