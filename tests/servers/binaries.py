"""Where the programs that tests need are on this host: servers', and Node's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SCRIPTS = (Path("/usr/lib/rabbitmq/bin"), Path("/opt/rabbitmq/sbin"))


def postgres_binaries() -> Path | None:
    """Return the folder with the newest Postgres server, or None."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0)
    config = shutil.which("pg_config")
    if config is not None:
        asked = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and (Path(asked.stdout.strip()) / "initdb").exists():
            return Path(asked.stdout.strip())
    in_path = shutil.which("initdb")
    return Path(in_path).resolve().parent if in_path is not None else None


def rabbitmq_scripts() -> Path | None:
    """Return the folder with RabbitMQ's own scripts, or None; those in PATH insist on an account."""
    for folder in _SCRIPTS:
        if (folder / "rabbitmq-server").exists() and shutil.which("epmd"):
            return folder
    return None


def node_program() -> Path | None:
    """Return Node, if it is there with npm, else None."""
    node = shutil.which("node")
    return Path(node) if node is not None and shutil.which("npm") else None
