"""The Flask shop: requests come back at once, and the work is done by a worker in another process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from examples.flask_shop import web
from tests.examples.web_shops import (
    ROOT,
    commands,
    eventually,
    fetched,
    findings,
    serving,
    set_servers,
    working_on,
)
from tidewheel import SyncClient

WORKFLOWS = "examples.flask_shop.workflows:app"
KETTLE = {"item": "kettle", "cents": 7800}
SHIPPED = {"status": "COMPLETED", "result": "shipped: payment of 7800 for a kettle"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user would try it: the files of the embedded default come here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("TIDEWHEEL_STORE", "TIDEWHEEL_BROKER", "TIDEWHEEL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(params=["files", "servers"])
def place(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, with everything in its files, or on Postgres and RabbitMQ."""
    set_servers(request, monkeypatch)
    return folder


@pytest.fixture
def browser(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlaskClient]:
    """Flask's test client, of a shop that is closed afterwards."""
    with SyncClient.lazy() as client:
        monkeypatch.setattr(web, "client", client)
        yield web.web.test_client()


def test_an_order_placed_while_no_worker_runs_is_fulfilled_when_one_does(
    browser: FlaskClient, place: Path
) -> None:
    """The request is answered at once; the run waits, is approved, and gives its result."""
    placed = browser.post("/orders", json=KETTLE)
    url = f"/orders/{placed.json['order']}" if placed.json else ""
    before = browser.get(url).json
    with working_on(WORKFLOWS, place):
        approved = browser.post(f"{url}/approval", json=True)
        eventually(lambda: browser.get(url).json, SHIPPED)
    late = browser.post(f"{url}/approval", json=True)

    assert (placed.status_code, approved.status_code, late.status_code) == (202, 202, 409)
    assert before == {"status": "RUNNING"}


def test_a_repeated_request_is_one_order(browser: FlaskClient) -> None:
    """Twenty requests at once with one key find one run; with another order under it they are told."""
    key = {"Idempotency-Key": "cart-1"}

    def place(_: int) -> str:
        response = web.web.test_client().post("/orders", json=KETTLE, headers=key)
        assert response.json is not None
        return str(response.json["order"])

    with ThreadPoolExecutor(8) as pool:
        orders = set(pool.map(place, range(20)))
    other = browser.post("/orders", json=KETTLE | {"cents": 1}, headers=key)

    assert len(orders) == 1
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("method", "url", "json", "status", "says"),
    [
        ("POST", "/orders", {"item": "kettle", "cents": "x"}, 400, "input[0].cents: expected a whole number"),
        ("POST", "/orders", {"item": "kettle"}, 400, "the field 'cents' is missing"),
        ("GET", "/orders/order-0", None, 404, "there is no run 'order-0'"),
        ("POST", "/orders/order-0/approval", True, 404, "there is no run 'order-0'"),
        ("GET", "/orders/or%20der", None, 400, "run id"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(
    browser: FlaskClient, method: str, url: str, json: object, status: int, says: str
) -> None:
    """Nothing is written, and the answer has HTTP's status for it."""
    response = browser.open(url, method=method, json=json)

    assert response.status_code == status
    assert says in response.text
    assert web.client.runs() == []


def test_a_store_that_is_away_is_the_shops_fault(browser: FlaskClient, folder: Path) -> None:
    """The caller is told to come again, and the next request finds the store when it is back."""
    (folder / "tidewheel.db").mkdir()
    away = browser.post("/orders", json=KETTLE)
    (folder / "tidewheel.db").rmdir()

    back = browser.post("/orders", json=KETTLE)

    assert (away.status_code, back.status_code) == (503, 202)


def test_the_commands_at_the_top_serve_real_requests(folder: Path) -> None:
    """As a reader would try them, without the worker."""
    dev, serve, *_ = commands(ROOT / "examples" / "flask_shop" / "web.py")

    with serving(serve, ("--port", "{port}"), folder) as shop:
        status, placed = fetched(f"{shop}/orders", b'{"item": "kettle", "cents": 7800}')
        shown = fetched(f"{shop}/orders/{placed['order']}")

    assert dev == ["tidewheel", "dev", WORKFLOWS]
    assert (status, shown) == (202, (200, {"status": "RUNNING"}))


def test_its_workflow_has_nothing_that_would_not_replay(folder: Path) -> None:
    """``tidewheel check`` finds no error and no warning in it."""
    assert findings(WORKFLOWS, folder) == f"{WORKFLOWS}: 1 workflow, 0 errors, 0 warnings"
