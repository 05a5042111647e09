"""Servers as a deployment sets them up: private ones, with the files and the secrets of ``deploy/``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers.postgres import DATABASE, PrivatePostgres
from tests.servers.rabbitmq import PrivateRabbit
from tests.unit.deploy.reading import DEPLOY

MOUNTED = "/run/secrets"
_SCRIPT_S_MAX = 60.0


class Secrets:
    """The secrets of a deployment, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.make()

    def make(self, *, postgres: int = 5432, rabbitmq: int = 5672) -> None:
        """Make the secrets, or bring their URLs up to date, for servers at these ports."""
        places = [
            "--postgres",
            f"127.0.0.1:{postgres}/{DATABASE}",
            "--rabbitmq",
            f"127.0.0.1:{rabbitmq}/tidewheel",
        ]
        script = [sys.executable, str(DEPLOY / "make_secrets.py"), "--folder", str(self.folder), *places]
        subprocess.run(script, capture_output=True, timeout=_SCRIPT_S_MAX, check=True)

    def __getitem__(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8").strip()


class DeployedRabbit(PrivateRabbit):
    """A node that reads our ``rabbitmq.conf``; where it listens is its own."""

    def __init__(self, secrets: Secrets) -> None:
        text = (DEPLOY / "rabbitmq" / "rabbitmq.conf").read_text("utf-8")
        super().__init__(configuration=text.replace(MOUNTED, str(secrets.folder)))


def make_accounts(server: PrivatePostgres, secrets: Secrets) -> None:
    """Execute ``accounts.sql`` in a new server as its image does: with psql, as the superuser."""
    text = (DEPLOY / "postgres" / "accounts.sql").read_text("utf-8")
    psql = shutil.which("psql")
    assert psql is not None, "psql comes with the server's package"
    done = subprocess.run(
        [psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", server.url],
        input=text.replace(MOUNTED, str(secrets.folder)),
        capture_output=True,
        text=True,
        timeout=_SCRIPT_S_MAX,
        check=False,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    assert done.returncode == 0, done.stderr
