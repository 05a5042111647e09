"""What becomes of an order of the Flask shop. ``web.py`` takes the orders, and says how to try it."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel import App, Context, Retry

app = App("flask-shop")

DAY = 86_400.0


@dataclass(frozen=True)
class Order:
    """What somebody wants to buy."""

    item: str
    cents: int


@app.task(retry=Retry(max_attempts=5))
def charge(order: Order) -> str:
    """Take the money; a payment provider would be called here."""
    return f"payment of {order.cents} for a {order.item}"


@app.task(retry=Retry(max_attempts=100))
def refund(payment: str) -> str:
    """Give it back."""
    return f"refunded: {payment}"


@app.workflow
async def fulfil(ctx: Context, order: Order) -> str:
    """Charge, and wait a day for somebody to approve; else give the money back."""
    payment = await ctx.invoke(charge, order)
    try:
        approved = await ctx.signal("approval", into=bool, timeout=DAY)
    except TimeoutError:
        approved = False
    return f"shipped: {payment}" if approved else await ctx.invoke(refund, payment)
