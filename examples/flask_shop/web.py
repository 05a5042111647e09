r"""A shop in Flask: requests start runs, look at them and signal them; workers do the work.

Shows ``SyncClient`` in a web application, and a request that may be repeated. Needs Flask and no server:
by default everything is in two files. Try it from the root of the checkout, in three terminals::

    tidewheel dev examples.flask_shop.workflows:app

    flask --app examples.flask_shop.web run

    curl --json '{"item": "kettle", "cents": 7800}' -H "Idempotency-Key: cart-1" http://127.0.0.1:5000/orders
    curl http://127.0.0.1:5000/orders/ORDER
    curl --json true http://127.0.0.1:5000/orders/ORDER/approval

Stop the first terminal before you place an order, and start it after: the order waits for it. With
``TIDEWHEEL_STORE`` and ``TIDEWHEEL_BROKER`` set, both use your Postgres and your RabbitMQ instead.
"""

from __future__ import annotations

from typing import Any

from flask import Flask, request

from examples.flask_shop.workflows import fulfil
from tidewheel import InvalidRequest, NotFound, SignalRejected, SyncClient, TidewheelError

#: What an error is to whoever made the request; any other is ours, as a store that is away.
STATUS: dict[type[TidewheelError], int] = {InvalidRequest: 400, NotFound: 404, SignalRejected: 409}
OURS = 503

web = Flask(__name__)

# Connects when a request first needs it, in each process that a server forks, and serves all its threads.
client = SyncClient.lazy()


@web.post("/orders")
def place() -> tuple[dict[str, Any], int]:
    """Start a run. From the commit on it is there, whatever becomes of this process and of the broker."""
    # What is no Order is refused here, before anything is written. Browsers and proxies repeat requests:
    # the same key is the same run.
    key = request.headers.get("Idempotency-Key")
    run = client.start(fulfil, request.get_json(), idempotency_key=key)
    if run.mismatch:
        return {"error": "this key was used for another order"}, 409
    return {"order": run.run_id}, 202


@web.get("/orders/<run_id>")
def show(run_id: str) -> dict[str, Any]:
    """Tell how a run stands. A request should not wait for work that may take a day."""
    run = client.handle(run_id)
    status = run.status()
    # It has ended, so asking for its result does not wait.
    return {"status": status} | ({"result": run.result(timeout=0)} if status == "COMPLETED" else {})


@web.post("/orders/<run_id>/approval")
def approve(run_id: str) -> tuple[dict[str, Any], int]:
    """Signal a run. It is kept until the code asks for it."""
    client.handle(run_id).signal("approval", request.get_json())
    return {"order": run_id}, 202


@web.errorhandler(TidewheelError)
def refuse(problem: TidewheelError) -> tuple[dict[str, Any], int]:
    """Say what went wrong, in HTTP's words."""
    status = next((status for kind, status in STATUS.items() if isinstance(problem, kind)), OURS)
    return {"error": str(problem)}, status
