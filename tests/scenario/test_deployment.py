"""The compose file, rehearsed: its services' own commands, settings, secrets and mounts, on real servers.

Each process is confined as the compose file asks (see ``confined``) and is what the Dockerfile makes of the
checkout. The servers are private ones with the accounts of the deployment. What this is not: Docker's engine,
its networks and volumes, and the servers' own images.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.deployed import MOUNTED, DeployedRabbit, Secrets, make_accounts
from tests.scenario.image import Image
from tests.servers.places import free_port
from tests.servers.postgres import PrivatePostgres
from tests.unit.deploy.reading import DEPLOY, IS_CHECKOUT, health_command, our_services

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")

ORDER = {"id": "1", "item": "kettle", "quantity": 2, "cents": 7800}
APPROVED = '{"approved": true, "by": "desk 3"}'
WAIT_S_MAX = 120.0
PAUSE_S = 0.1


class Container:
    """A service that runs, until it is told to stop."""

    def __init__(self, image: Image, command: list[str], port: int, log: Path) -> None:
        self.image, self.port, self.log = image, port, log
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)

    def wait_ready(self) -> None:
        """Wait until it says that it works."""
        deadline = time.monotonic() + WAIT_S_MAX
        while '"message": "ready"' not in self.log.read_text("utf-8"):
            assert self.process.poll() is None, self.log.read_text("utf-8")
            assert time.monotonic() < deadline, self.log.read_text("utf-8")
            time.sleep(PAUSE_S)

    def health(self) -> int:
        """Do the image's health check, and return its exit code."""
        return self.image.execute(*health_command(self.port)).returncode

    def stop(self) -> int:
        """Tell it to stop as an engine does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S_MAX)

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


class Deployment:
    """The services of the compose file, on servers that are there."""

    def __init__(self, image: Image, secrets: Secrets, folder: Path) -> None:
        self.image, self.secrets, self.folder = image, secrets, folder
        self._number = 0

    def command(self, name: str, arguments: list[str] | None = None, *, port: int = 0) -> list[str]:
        """Return what runs the service called *name*, with its own arguments or others."""
        service = our_services()[name]
        files = {f"{MOUNTED}/{secret}": self.secrets.folder / secret for secret in service["secrets"]}
        for source, target, _ in (volume.split(":") for volume in service.get("volumes", [])):
            files[target] = (DEPLOY / source).resolve()
        environment = service["environment"] | {"TIDEWHEEL_HEALTH": f"127.0.0.1:{port}"}
        return self.image.command(arguments or service["command"], environment=environment, mounts=files)

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a service to its end."""
        command = self.command(name, list(arguments))
        return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)

    def cli(self, line: str) -> Any:
        """Run the command as people do, and return what it says in JSON."""
        done = self.run("cli", *shlex.split(line), "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if lines else None

    def start(self, name: str, *more: str) -> Container:
        """Start a service that stays, with *more* arguments."""
        self._number += 1
        port = free_port()
        log = self.folder / f"{name}-{self._number}.log"
        arguments = [*our_services()[name]["command"], *more]
        return Container(self.image, self.command(name, arguments, port=port), port, log)


@pytest.fixture
def deployment(image: Image, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment whose servers run and whose database is migrated."""
    secrets = Secrets(tmp_path / "secrets")
    with PrivatePostgres() as postgres, DeployedRabbit(secrets) as rabbitmq:
        secrets.make(postgres=postgres.port, rabbitmq=rabbitmq.port)
        make_accounts(postgres, secrets)
        made = Deployment(image, secrets, tmp_path)
        migrated = made.run("migrate")
        assert migrated.returncode == 0, migrated.stderr
        yield made


def started(order: str) -> str:
    """Return the command that starts *order*."""
    return f"run start fulfil --run-id {order} --input {shlex.quote(json.dumps([ORDER | {'id': order}]))}"


def approved(order: str) -> str:
    """Return the command that approves *order*."""
    return f"run signal {order} approval --payload {shlex.quote(APPROVED)}"


def test_the_deployment_works(deployment: Deployment) -> None:
    """What is started before any worker, and what a killed worker had, is done; all is healthy and stops."""
    early = deployment.run("cli", *shlex.split(started("order-0")))

    with ExitStack() as running:
        containers = [
            deployment.start("keeper"),
            deployment.start("relay"),
            deployment.start("projector"),
            deployment.start("worker"),
            deployment.start("worker", "--processes", "2"),
        ]
        for container in containers:
            running.callback(container.kill)
            container.wait_ready()
        healths = [container.health() for container in containers]
        keeper, relay, projector, killed, staying = containers
        deployment.cli(started("order-1"))
        killed.kill()
        for order in ("order-0", "order-1"):
            deployment.cli(approved(order))
        results = [deployment.cli(f"run result {order}") for order in ("order-0", "order-1")]
        deployment.cli("doctor")
        codes = [container.stop() for container in (staying, projector, relay, keeper)]

    # A client may not make work queues: its hint was lost, which is no error, and the keeper gave it again.
    assert (early.returncode, "Traceback" in early.stderr) == (0, False), early.stderr
    assert healths == [0, 0, 0, 0, 0]
    assert killed.health() == 1
    assert [(each["status"], each["result"]["tracking"]) for each in results] == [
        ("COMPLETED", "track-order-0"),
        ("COMPLETED", "track-order-1"),
    ]
    assert codes == [0, 0, 0, 0]
