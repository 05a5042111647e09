"""What becomes of an order of the Django shop. Tasks use the models; the workflow knows only numbers.

Plain functions run in threads, where Django's database layer works; in an ``async def`` it refuses to.
"""

from __future__ import annotations

import os

import django
from django.db import close_old_connections

from tidewheel import App, Context, Retry

# A worker is a program of its own: what manage.py does for others is done here.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
django.setup()

app = App("django-shop")

DAY = 86_400.0


@app.task(retry=Retry(max_attempts=10))
def set_state(order_id: int, state: str) -> None:
    """Write how far an order got. Doing it twice changes nothing: a task may be executed again."""
    from examples.django_shop.models import Order  # noqa: PLC0415 - models exist after the set-up above

    close_old_connections()  # nobody else does: there is no request whose end would
    Order.objects.filter(pk=order_id).update(state=state)


@app.workflow
async def fulfil(ctx: Context, order_id: int) -> str:
    """Wait a day for somebody to approve, and ship."""
    try:
        approved = await ctx.signal("approval", into=bool, timeout=DAY)
    except TimeoutError:
        approved = False
    state = "shipped" if approved else "cancelled"
    await ctx.invoke(set_state, order_id, state)
    return state
