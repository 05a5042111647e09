"""Requests start runs, look at them and signal them; workers do the work.

A run is started when the request's own transaction has committed, and not before: else a worker could
look for an order that is not there yet, or never will be, since the transaction was rolled back.
"""

from __future__ import annotations

from functools import partial

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404

from examples.django_shop.models import Order
from tidewheel import NotFound, SignalRejected, SyncClient, SyncHandle

# Connects when a request first needs it, in each process that a server forks, and serves all its threads.
client = SyncClient.lazy()

#: How many orders are looked at at a time.
SWEEP_MAX = 1_000


def start(order: Order) -> SyncHandle[str]:
    """Start the run of *order*, or find it. By name: this process needs no code of the worker's."""
    return client.start("fulfil", order.pk, run_id=order.run_id)


def start_forgotten() -> int:
    """Start what a process left that died between its commit and its start; return how many were looked at.

    The transaction is Django's and the run is Tidewheel's, so something can come between the two. Do this
    now and then, as from cron: an order whose run was started finds that run.
    """
    forgotten = Order.objects.filter(state="placed").order_by("-pk")[:SWEEP_MAX]
    return len([start(order) for order in forgotten])


def place(request: HttpRequest) -> JsonResponse:
    """Keep an order, and start its run when that is committed."""
    order = Order.objects.create(item=request.POST["item"], cents=int(request.POST["cents"]))
    transaction.on_commit(partial(start, order))
    return JsonResponse({"order": order.pk, "run": order.run_id}, status=202)


def show(_: HttpRequest, order_id: int) -> JsonResponse:
    """Tell how an order and its run stand. A request should not wait for work that may take a day."""
    order = get_object_or_404(Order, pk=order_id)
    try:
        status = client.handle(order.run_id).status()
    except NotFound:
        status = "not started yet"
    return JsonResponse({"order": order.pk, "state": order.state, "run": status})


def approve(request: HttpRequest, order_id: int) -> JsonResponse:
    """Signal the run of an order. It is kept until the code asks for it."""
    order = get_object_or_404(Order, pk=order_id)
    try:
        client.handle(order.run_id).signal("approval", request.POST["approved"] == "yes")
    except (NotFound, SignalRejected) as problem:
        return JsonResponse({"error": str(problem)}, status=409)
    return JsonResponse({"order": order.pk}, status=202)
