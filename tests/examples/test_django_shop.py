"""The Django shop: a run is started by the commit of the request that ordered it, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

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

WORKFLOWS = "examples.django_shop.workflows:app"
SETTINGS = "examples.django_shop.settings"
KETTLE = {"item": "kettle", "cents": "7800"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the shop's database; Django is set up once in a process, and knows one."""
    folder = tmp_path_factory.mktemp("django-shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_SETTINGS_MODULE", SETTINGS)
        patch.setenv("SHOP_DATABASE", str(folder / "shop.db"))
        patch.setenv("PYTHONPATH", str(ROOT))
        import django
        from django.core.management import call_command
        from django.db import connections

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        yield folder
        connections.close_all()


@pytest.fixture
def folder(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user would try it: the files of the embedded default come here."""
    monkeypatch.chdir(tmp_path)
    for name in ("TIDEWHEEL_STORE", "TIDEWHEEL_BROKER", "TIDEWHEEL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture(params=["files", "servers"])
def place(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, with everything in its files, or on Postgres and RabbitMQ."""
    set_servers(request, monkeypatch)
    return folder


@pytest.fixture
def views(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The shop's views, with no orders, and a client that is closed afterwards."""
    from examples.django_shop import models, views

    models.Order.objects.all().delete()
    with SyncClient.lazy() as client:
        monkeypatch.setattr(views, "client", client)
        yield views


@pytest.fixture
def browser(views: ModuleType) -> Any:
    """Django's test client."""
    from django.test import Client

    return Client()


def test_an_order_is_kept_then_started_then_fulfilled(browser: Any, place: Path) -> None:
    """The worker writes into the shop's own database, through the same models."""
    placed = browser.post("/orders", KETTLE)
    url = f"/orders/{placed.json()['order']}"
    before = browser.get(url).json()
    with working_on(WORKFLOWS, place):
        approved = browser.post(f"{url}/approval", {"approved": "yes"})
        eventually(lambda: browser.get(url).json()["run"], "COMPLETED")
    after = browser.get(url).json()
    late = browser.post(f"{url}/approval", {"approved": "yes"})

    assert (placed.status_code, approved.status_code, late.status_code) == (202, 202, 409)
    assert (before["state"], before["run"]) == ("placed", "RUNNING")
    assert after["state"] == "shipped"


def test_a_request_that_is_rolled_back_starts_nothing(views: ModuleType) -> None:
    """Else a worker would be told of an order that never was."""
    from django.db import transaction
    from django.test import RequestFactory

    def place_and_fail() -> None:
        with transaction.atomic():
            views.place(RequestFactory().post("/orders", KETTLE))
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        place_and_fail()

    assert views.Order.objects.count() == 0
    assert views.client.runs() == []


def test_an_order_whose_request_died_after_its_commit_is_started_by_the_sweep(
    browser: Any, views: ModuleType
) -> None:
    """Between two databases something can come; starting again what was started changes nothing."""
    forgotten = views.Order.objects.create(item="kettle", cents=1)
    browser.post("/orders", KETTLE)
    before = browser.get(f"/orders/{forgotten.pk}").json()["run"]

    looked_at = [views.start_forgotten(), views.start_forgotten()]

    assert before == "not started yet"
    assert browser.get(f"/orders/{forgotten.pk}").json()["run"] == "RUNNING"
    assert looked_at == [2, 2]
    assert len(views.client.runs()) == 2


def test_what_is_not_there_is_not_found(browser: Any) -> None:
    """An order that nobody placed, and the wrong way to ask for one that somebody did."""
    assert browser.get("/orders/0").status_code == 404
    assert browser.post("/orders/0/approval", {"approved": "yes"}).status_code == 404
    assert browser.get("/orders").status_code == 405


def test_the_commands_at_the_top_serve_real_requests(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reader would try them, without the worker."""
    monkeypatch.setenv("SHOP_DATABASE", "tried.db")
    dev, migrate, serve, *_ = commands(ROOT / "examples" / "django_shop" / "urls.py")

    subprocess.run([sys.executable, *migrate[1:]], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    with serving(serve, ("--noreload", "{port}"), folder) as shop:
        status, placed = fetched(
            f"{shop}/orders", b"item=kettle&cents=7800", "application/x-www-form-urlencoded"
        )
        shown = fetched(f"{shop}/orders/{placed['order']}")

    assert dev == ["tidewheel", "dev", WORKFLOWS]
    assert (status, shown) == (202, (200, {"order": 1, "state": "placed", "run": "RUNNING"}))


def test_its_workflow_has_nothing_that_would_not_replay(folder: Path) -> None:
    """``tidewheel check`` finds no error and no warning in it."""
    assert findings(WORKFLOWS, folder) == f"{WORKFLOWS}: 1 workflow, 0 errors, 0 warnings"
