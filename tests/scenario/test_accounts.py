"""Postgres as a deployment sets it up: its accounts, and what ``db migrate --roles`` lets them do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege, OperationalError

from tests.scenario.deployed import Secrets, make_accounts
from tests.servers.postgres import PrivatePostgres
from tests.unit.deploy.reading import IS_CHECKOUT, our_services
from tidewheel.sdk.client import Client

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")

TIDEWHEEL = Path(sys.executable).with_name("tidewheel")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secrets]:
    """The secrets of a database with our accounts, migrated by the command of the compose file."""
    made = Secrets(tmp_path_factory.mktemp("deployed") / "secrets")
    with PrivatePostgres() as server:
        made.make(postgres=server.port)
        make_accounts(server, made)
        assert migrated(made) == ""
        yield made


def migrated(secrets: Secrets) -> str:
    """Do what the service that migrates does; return what is wrong with it."""
    service = our_services()["migrate"]
    environment = {
        name: value.replace("/run/secrets", str(secrets.folder))
        for name, value in service["environment"].items()
    }
    done = subprocess.run(
        [TIDEWHEEL, *service["command"]],
        env={"PATH": os.defpath, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return "" if done.returncode == 0 else done.stderr


def connected(secrets: Secrets, role: str) -> psycopg.Connection:
    """Connect as the account of *role*; every statement is a transaction."""
    return psycopg.connect(secrets[f"store_{role}"], autocommit=True)


def test_migrating_again_changes_nothing(secrets: Secrets) -> None:
    """A deployment does it at every start."""
    assert migrated(secrets) == ""


def test_no_account_is_more_than_its_role(secrets: Secrets) -> None:
    """None is a superuser, none makes roles or databases, and each is in one role."""
    with connected(secrets, "migrator") as connection:
        rows = connection.execute(
            "SELECT rolname, rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls,"
            "       ARRAY(SELECT roleid::regrole::text FROM pg_auth_members WHERE member = role.oid)"
            "  FROM pg_roles AS role WHERE rolname LIKE 'app%' ORDER BY rolname"
        ).fetchall()

    assert rows == [
        ("app_client", False, ["tidewheel_worker"]),
        ("app_keeper", False, ["tidewheel_keeper"]),
        ("app_migrator", False, ["tidewheel_migrator"]),
        ("app_projector", False, ["tidewheel_projector"]),
        ("app_relay", False, ["tidewheel_relay"]),
        ("app_worker", False, ["tidewheel_worker"]),
    ]


@pytest.mark.parametrize("role", ["client", "worker"])
async def test_a_run_is_started_and_read(secrets: Secrets, role: str) -> None:
    """What a client and a worker do needs no more than they have."""
    client = await Client.connect(store=secrets[f"store_{role}"], broker="memory://")

    handle = await client.start("fulfil", 1, run_id=f"order-{role}")
    status, journal = await handle.status(), await handle.journal()
    await client.close()

    assert status == "RUNNING"
    assert [type(entry.event).__name__ for entry in journal] == ["ExecutionStarted"]


@pytest.mark.parametrize("role", ["client", "worker", "keeper", "relay", "projector"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tidewheel_journal SET first_seq = first_seq",
        "DELETE FROM tidewheel_journal",
        "TRUNCATE tidewheel_journal",
        "DELETE FROM tidewheel_runs",
        "DROP TABLE tidewheel_journal",
        "CREATE TABLE mine (id int)",
        "CREATE TEMPORARY TABLE mine (id int)",
        "ALTER ROLE app_worker SUPERUSER",
        "SET ROLE tidewheel_migrator",
        "COPY tidewheel_journal TO PROGRAM 'true'",
    ],
)
def test_a_journal_is_only_ever_appended_to(secrets: Secrets, role: str, statement: str) -> None:
    """The server refuses what no part of Tidewheel does."""
    with connected(secrets, role) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute(statement)


def test_only_a_keeper_retires_runs(secrets: Secrets) -> None:
    """Through the function for it, which deletes what has ended."""
    partitions = "SELECT tidewheel_make_partitions_v2(tidewheel_now_v1(), 7, 4)"

    with connected(secrets, "keeper") as connection:
        connection.execute(partitions)
    with connected(secrets, "worker") as connection, pytest.raises(InsufficientPrivilege):
        connection.execute(partitions)


def test_another_accounts_password_does_not_fit(secrets: Secrets) -> None:
    """Each has its own."""
    wrong = secrets["store_worker"].replace(secrets["postgres_worker"], secrets["postgres_keeper"])

    with pytest.raises(OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_nobody_else_gets_into_the_database(secrets: Secrets) -> None:
    """Other accounts of the server have no business in it; theirs is another database."""
    with connected(secrets, "migrator") as connection:
        (allowed,) = connection.execute(
            "SELECT count(*) FROM pg_database, aclexplode(datacl) AS acl"
            " WHERE datname = current_database() AND acl.grantee = 0"
        ).fetchone() or (None,)

    assert allowed == 0
