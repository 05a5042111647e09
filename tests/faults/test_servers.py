"""The servers that tests get: whatever happens, they keep what they should and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import psycopg
import pytest
from aio_pika.abc import AbstractIncomingMessage

from tests.servers import guardian
from tests.servers.desk import Desk, RemoteDesk
from tests.servers.fixtures import database_at
from tests.servers.guardian import started
from tests.servers.node_folder import VHOST
from tests.servers.places import ServerTrouble, private_folder
from tests.servers.postgres import PrivatePostgres
from tests.servers.provision import offers
from tests.servers.rabbitmq import PrivateRabbit
from tests.servers.vhosts import VirtualHosts

ROOT = Path(__file__).parents[2]
GONE_S_MAX = 60.0

#: A command that tells what it was given and then stays.
STAYING = """
import json, os, sys, time
print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("TIDEWHEEL_TEST_")}))
sys.stdout.flush()
time.sleep(600)
"""

#: Tests that write down the database that their process was given.
ASKING = """
import os, pathlib, pytest

@pytest.mark.parametrize("turn", [1, 2])
def test_asks(postgres_url, turn):
    pathlib.Path(os.environ["ASKING"], os.environ["PYTEST_XDIST_WORKER"]).write_text(postgres_url)
"""


@pytest.fixture(scope="module")
def node() -> Iterator[PrivateRabbit]:
    """A node with everything that can be asked for."""
    with PrivateRabbit(tls=True, management=True) as made:
        yield made


def descendants(pid: int) -> dict[int, str]:
    """Return the processes below *pid*, each with when it began."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text("utf-8", errors="replace")
        except OSError:
            continue
        parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        left += (children := parents.get(left.pop(), []))
        found += children
    return {child: started(child) for child in found}


def folders(pids: dict[int, str]) -> set[Path]:
    """Return the folders of servers in which the processes are."""
    places: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):  # one that has just ended, as helpers of servers do
            places.add(Path(f"/proc/{pid}/cwd").readlink())
    return {path for place in places for path in (place, *place.parents) if path.name.startswith("tw-")}


def sessions(pids: dict[int, str]) -> set[int]:
    """Return the sessions of processes."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            found.add(os.getsid(pid))
    return found


def await_end(pids: dict[int, str]) -> None:
    """Wait until none of the processes runs."""
    deadline = time.monotonic() + GONE_S_MAX
    while left := [pid for pid, began in pids.items() if began and started(pid) == began]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.02)


def members(ids: set[int]) -> list[int]:
    """Return the processes that are in one of the sessions."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = stat.read_text("utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if state not in "ZX" and int(session) in ids:
            found.append(int(stat.parent.name))
    return found


def segments() -> set[str]:
    """Return the segments of shared memory on this host, by their ids."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text("ascii").splitlines()[1:]}


def running(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start ``python -m tests.servers run``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_TEST_")}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.servers", "run", *arguments],
        cwd=ROOT,
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(url: str) -> bool:
    """Tell whether somebody listens where *url* points."""
    try:
        with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port or 0), timeout=2.0):
            return True
    except OSError:
        return False


def count(url: str) -> int:
    """Return how many rows the table of these tests has."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("end", ["stop", "crash", "kill"])
def test_postgres_keeps_what_was_committed_under_the_same_url(
    own_postgres: PrivatePostgres, end: str
) -> None:
    """However a server ended, it starts again with every committed row, and clients need not be told."""
    url = own_postgres.url
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000)")

    getattr(own_postgres, end)()
    assert not answers(url)
    own_postgres.start()

    assert own_postgres.url == url
    assert count(url) == 1000


@pytest.mark.parametrize("end", ["stop", "crash", "kill"])
def test_postgres_leaves_nothing_behind(end: str) -> None:
    """Neither processes nor files nor shared memory outlive the server, also when it was killed."""
    with PrivatePostgres() as server:
        assert server.pid is not None
        pids = {server.pid: started(server.pid), **descendants(server.pid)}
        places = folders(pids)
        segment = (server.data / "postmaster.pid").read_text("ascii").splitlines()[6].split()[1]
        held = segment in segments()
        with psycopg.connect(server.url):
            getattr(server, end)()

    await_end(pids)
    assert len(places) == 1
    assert not any(place.exists() for place in places)
    assert held
    assert segment not in segments()


def test_postgres_has_the_settings_it_was_given() -> None:
    """What a test needs to be otherwise is otherwise, and the rest is as for all tests."""
    with (
        PrivatePostgres({"fsync": True, "max_prepared_transactions": 7}) as server,
        psycopg.connect(server.url) as connection,
    ):
        rows = connection.execute(
            "SELECT name, setting FROM pg_settings"
            " WHERE name IN ('fsync', 'max_prepared_transactions', 'max_connections')"
        ).fetchall()

    assert dict(rows) == {"fsync": "on", "max_prepared_transactions": "7", "max_connections": "200"}


def test_postgres_copies_a_template(own_postgres: PrivatePostgres) -> None:
    """A database with a schema in it is made once and copied for each test."""
    with psycopg.connect(own_postgres.create_database("mould")) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1")

    copy = own_postgres.create_database("copy", template="mould")

    assert count(copy) == 1


def test_postgres_that_cannot_start_says_why() -> None:
    """The end of the server's log is in the error."""
    with pytest.raises(ServerTrouble, match="no_such_library"):
        PrivatePostgres({"shared_preload_libraries": "no_such_library"}).__enter__()


async def acknowledge(message: AbstractIncomingMessage) -> None:
    """Take a message."""
    await message.ack()


async def test_a_killed_node_keeps_confirmed_messages(node: PrivateRabbit) -> None:
    """What the broker confirmed is there again after SIGKILL, under the same URL."""
    node.renew()
    url = node.url
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("kept", durable=True, arguments={"x-queue-type": "quorum"})
        for _ in range(10):
            await channel.default_exchange.publish(aio_pika.Message(b""), "kept")
    node.settle()

    node.kill()
    assert not answers(url)
    node.start()

    assert node.url == url
    assert [(row["name"], row["ready"]) for row in node.list_queues()] == [("kept", 10)]


async def test_a_node_shows_and_closes_what_is_connected(node: PrivateRabbit) -> None:
    """Consumers are listed, and the broker closes connections when it is told to."""
    node.renew()
    told = asyncio.get_running_loop().create_future()
    connection = await aio_pika.connect(node.url)
    connection.close_callbacks.add(lambda _, problem: told.set_result(str(problem)))
    channel = await connection.channel()
    queue = await channel.declare_queue("used", durable=True)
    await queue.consume(acknowledge, consumer_tag="tag")
    shown = node.list_consumers()

    closed = node.close_all_connections()

    async with asyncio.timeout(10):
        assert "closed by a test" in await told
    await connection.close()
    assert [(row["queue"], row["tag"]) for row in shown] == [("used", "tag")]
    assert closed == 1
    assert node.list_consumers() == []


def test_a_broker_goes_and_comes_back_in_its_node(node: PrivateRabbit) -> None:
    """Stopping the application leaves the Erlang machine, which starts it again in a second."""
    node.renew()
    pid = node.pid

    node.stop_app()
    gone = not answers(node.url)
    node.start_app()

    assert gone
    assert answers(node.url)
    assert node.pid == pid


def test_a_node_raises_its_memory_alarm_when_told(node: PrivateRabbit) -> None:
    """Publishers are blocked while the alarm is on."""
    node.renew()

    node.raise_memory_alarm()
    assert node.evaluate("rabbit_alarm:get_alarms() =/= [].")
    node.clear_memory_alarm()

    assert node.evaluate("rabbit_alarm:get_alarms() =:= [].")


def test_a_node_has_an_encrypted_listener(node: PrivateRabbit) -> None:
    """Its certificate is that of its own authority, for the name in its URL."""
    where = urlsplit(node.tls_url)
    trusting = ssl.create_default_context(cafile=node.authority_file)

    with (
        socket.create_connection((where.hostname, where.port or 0), timeout=10) as line,
        trusting.wrap_socket(line, server_hostname=where.hostname) as secured,
    ):
        secured.sendall(b"AMQP\x00\x00\x09\x01")

        assert secured.recv(1) == b"\x01"


async def test_virtual_hosts_of_a_given_broker_are_made_by_its_management(node: PrivateRabbit) -> None:
    """Where a broker was given by a URL, there is no control socket; a wrong address is explained."""
    node.renew()
    given = VirtualHosts(node.url, management=node.management_url)

    url = given.create("guest/room")
    async with await aio_pika.connect(url) as connection:
        await connection.channel()
    given.delete("guest/room")

    assert node.evaluate("length(rabbit_vhost:list_names()).") == 1
    with pytest.raises(ServerTrouble, match="Enable the plugin"):
        VirtualHosts(node.url, management="http://127.0.0.1:9").create(VHOST)


@pytest.mark.parametrize(
    ("number", "code", "servers"),
    [
        (signal.SIGINT, 130, {"postgres", "beam.smp", "epmd"}),
        (signal.SIGKILL, -9, {"postgres", "beam.smp", "epmd"}),
        (signal.SIGTERM, 143, {"postgres"}),
    ],
)
def test_an_interrupted_run_leaves_nothing_behind(
    number: signal.Signals, code: int, servers: set[str]
) -> None:
    """Servers, command and folders go, whatever ends the run: also a signal that it cannot handle."""
    wanted = [] if "beam.smp" in servers else ["--postgres"]
    with running(*wanted, "--", sys.executable, "-c", STAYING) as run:
        assert run.stdout is not None
        given = json.loads(run.stdout.readline())
        pids = descendants(run.pid)
        places, ids = folders(pids), sessions(pids) - {os.getsid(0)}
        names = {Path(f"/proc/{pid}/comm").read_text("ascii").strip() for pid in pids if started(pid)}

        run.send_signal(number)
        run.wait(GONE_S_MAX)
        await_end(pids)

    assert run.returncode == code
    assert servers <= names
    assert members(ids) == []
    assert len(places) == (2 if "beam.smp" in servers else 1)
    assert not any(place.exists() for place in places)
    assert not any(answers(url) for url in given.values() if "://" in url)


def test_a_guardian_that_was_slow_to_begin_still_acts() -> None:
    """What its process asked for before it was killed is done, though the guardian only began afterwards."""
    folder = private_folder("left")
    with subprocess.Popen([sys.executable, "-c", STAYING], start_new_session=True) as stayer:
        asked = f"process {stayer.pid} {signal.SIGTERM.value} {started(stayer.pid)}\nfolder {folder}\n"
        nobody = 0
        command = [sys.executable, "-I", "-S", guardian.__file__, str(nobody)]

        subprocess.run(command, input=asked, text=True, check=True)

        ended = stayer.poll()
        stayer.kill()
    assert ended == -signal.SIGTERM
    assert not folder.exists()


def test_a_guardian_lets_go_though_a_forked_child_goes_on() -> None:
    """A child has the pipe too: its end is not waited for, and what was guarded stays."""
    folder = private_folder("kept")
    guarding = guardian.Guardian()
    guarding.remove(folder)
    child = os.fork()
    if child == 0:
        time.sleep(GONE_S_MAX)
        os._exit(0)

    guarding.release()

    ended, _ = os.waitpid(child, os.WNOHANG)
    os.kill(child, signal.SIGKILL)
    assert ended == 0, "the guardian waited for it"
    os.waitpid(child, 0)
    assert folder.exists()
    folder.rmdir()


def test_a_given_server_is_used_and_goes_on(own_postgres: PrivatePostgres) -> None:
    """A URL in the environment is handed on, and that server not stopped; the exit code is the command's."""
    command = 'echo "$TIDEWHEEL_TEST_POSTGRES"; exit 7'
    with running("--postgres", "--", "sh", "-c", command, TIDEWHEEL_TEST_POSTGRES=own_postgres.url) as run:
        out, err = run.communicate(timeout=60)

    assert out.strip() == own_postgres.url
    assert run.returncode == 7
    assert "as given in TIDEWHEEL_TEST_POSTGRES" in err
    assert answers(own_postgres.url)


def test_a_command_that_is_not_there_is_named() -> None:
    """The exit code is the one that a shell gives."""
    with running("--postgres", "--", "no-such-command", TIDEWHEEL_TEST_POSTGRES="postgresql://given") as run:
        _, err = run.communicate(timeout=60)

    assert run.returncode == 127
    assert "no-such-command" in err


def test_test_processes_share_a_server_and_not_a_database(tmp_path: Path) -> None:
    """A session without a given server has a private one for all its processes, which ends with it."""
    (tmp_path / "test_asking.py").write_text(ASKING, "utf-8")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_TEST_")}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-c", str(ROOT / "pyproject.toml"),
         "-p", "tests.servers.fixtures", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        env=inherited | {"ASKING": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    one, other = (urlsplit((tmp_path / name).read_text("utf-8")) for name in ("gw0", "gw1"))
    assert one.netloc == other.netloc
    assert one.path != other.path
    assert not answers(one.geturl())


def test_a_desk_hands_on_a_given_url_to_other_processes() -> None:
    """What is in the environment is not started; trouble is told to the one who asked."""
    given = "postgresql://given"
    with Desk(offers({"TIDEWHEEL_TEST_POSTGRES": given}), lambda _: None) as desk:
        remote = RemoteDesk(desk.address)

        assert remote.get("postgres") == {"TIDEWHEEL_TEST_POSTGRES": given}
        with pytest.raises(ServerTrouble, match="no such thing"):
            remote.get("no such thing")


def test_databases_on_a_shared_server_go_with_their_tests(postgres_server: str) -> None:
    """A database is there for a test, empty, and dropped after it though somebody is still connected."""
    made = database_at(postgres_server)
    url = next(made)
    with closing(psycopg.connect(url)) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone()

        assert next(made, "over") == "over"

    with psycopg.connect(postgres_server) as connection:
        names = {row[0] for row in connection.execute("SELECT datname FROM pg_database").fetchall()}
    assert tables == (0,)
    assert urlsplit(url).path.lstrip("/") not in names
