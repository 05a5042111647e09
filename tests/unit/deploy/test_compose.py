"""The compose file: it is one, and what runs by it is confined, waits for what it needs, and holds no secret.

It is never run here: that needs a Docker engine. ``tests/scenario/test_deployment.py`` runs its commands,
with its settings, on servers of its own.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.deploy.reading import (
    COMPOSE,
    DEPLOY,
    IS_CHECKOUT,
    ROOT,
    compose,
    final_stage,
    our_services,
    run_tool,
    services,
    variables,
)
from tidewheel.cli.roles.supervising import OVERTIME_S
from tidewheel.workers.config import WorkerConfig

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")

YAML_RULES = """
extends: default
rules:
  line-length: {max: 120}
  document-start: disable
  braces: {max-spaces-inside: 0}
"""
_SECONDS = {"s": 1, "m": 60}


def seconds(text: str) -> int:
    """Return a duration such as ``45s`` or ``1m`` in seconds."""
    return int(text[:-1]) * _SECONDS[text[-1]]


def mounts(service: dict[str, Any]) -> list[list[str]]:
    """Return the parts of each of a service's mounts: source, target, mode."""
    return [mount.split(":") for mount in service.get("volumes", [])]


each_service = pytest.mark.parametrize("name", sorted(services()) if IS_CHECKOUT else [])
each_of_ours = pytest.mark.parametrize("name", sorted(our_services()) if IS_CHECKOUT else [])


def test_it_is_a_compose_file() -> None:
    """The schema of the Compose specification knows every key of it."""
    assert run_tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE) == ""


def test_a_key_that_compose_does_not_know_would_be_found(tmp_path: Path) -> None:
    """A misspelt key would otherwise do nothing, for instance not confine."""
    bad = tmp_path / "compose.yaml"
    bad.write_text(COMPOSE.read_text("utf-8").replace("read_only: true", "readonly: true"), "utf-8")

    said = run_tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", bad)

    assert "'readonly' was unexpected" in said


def test_it_is_tidy_yaml() -> None:
    """No duplicate key, no indentation that means something else than it looks like."""
    assert run_tool("yamllint", "--strict", "-d", YAML_RULES, COMPOSE) == ""


def test_there_are_two_workers_and_a_keeper_beside_the_servers() -> None:
    """All that a deployment needs."""
    found = services()

    assert {"postgres", "rabbitmq", "migrate", "worker", "keeper"} <= found.keys()
    assert found["worker"]["deploy"]["replicas"] == 2


@each_service
def test_every_service_is_confined(name: str) -> None:
    """No root, no capabilities, no new privileges, nothing to write to but memory and named volumes."""
    service = services()[name]

    user, group = service["user"].split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])  # noqa: S108 - the container's own
    assert all("size=" in mount for mount in service["tmpfs"] if mount.startswith("/tmp:"))  # noqa: S108 - as above


@each_service
def test_what_is_mounted_from_the_checkout_is_read_only(name: str) -> None:
    """Only named volumes can be written to; what is mounted is there."""
    for source, *rest in mounts(services()[name]):
        if source.startswith("."):
            assert rest[-1] == "ro"
            assert (DEPLOY / source).is_file()
        else:
            assert source in compose()["volumes"]


@each_service
def test_every_service_has_limits(name: str) -> None:
    """One that leaks takes nobody with it."""
    limits = services()[name]["deploy"]["resources"]["limits"]

    assert limits.keys() == {"cpus", "memory", "pids"}


@each_service
def test_every_service_that_stays_has_a_health_check(name: str) -> None:
    """Its own or its image's; what ends by itself has none."""
    service = services()[name]
    ends = service.get("restart") == "no"

    check: Any = service.get("healthcheck")
    if ends:
        assert check == {"disable": True}
    elif name in our_services():
        assert check is None, "the image has one"
        assert "HEALTHCHECK" in final_stage()
    else:
        assert check["test"][0] == "CMD"
        assert check.keys() == {"test", "interval", "timeout", "start_period", "retries"}


@each_of_ours
def test_everything_waits_until_what_it_needs_is_ready(name: str) -> None:
    """A schema to work with, and servers that answer; not merely containers that were started."""
    service = services()[name]

    needed = {"postgres": "service_healthy"}
    if "TIDEWHEEL_BROKER_FILE" in service["environment"]:
        needed |= {"rabbitmq": "service_healthy", "migrate": "service_completed_successfully"}
    if "profiles" in service:  # called by people, when everything runs
        needed = {}
    waits = {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
    assert waits == needed


@each_of_ours
def test_everything_of_ours_has_time_to_stop(name: str) -> None:
    """A worker that is killed within its grace would look as if it had crashed."""
    service = services()[name]
    if service.get("restart") == "no":
        return
    settings = WorkerConfig.from_environment(service["environment"])

    assert seconds(service["stop_grace_period"]) > settings.grace_s + OVERTIME_S
    assert service["init"] is True


@each_of_ours
def test_an_image_of_ours_never_comes_from_elsewhere(name: str) -> None:
    """An unqualified name would be pulled from a public registry, where it is somebody else's."""
    service = services()[name]

    assert service.get("pull_policy") == "never" or service["build"]["dockerfile"] == "deploy/Dockerfile"
    assert service["user"] == final_stage()["USER"][0]


def test_nothing_is_published() -> None:
    """Servers are reached over a network that leads nowhere else."""
    found = services()

    assert [name for name, service in found.items() if "ports" in service] == []
    assert compose()["networks"]["data"] == {"internal": True}
    assert all("data" in service["networks"] for service in found.values())
    assert [name for name, service in found.items() if "outside" in service["networks"]] == ["worker"]


# Secrets


@each_service
def test_no_secret_is_in_the_environment(name: str) -> None:
    """Passwords and URLs with them are files; a variable only names one."""
    service = services()[name]
    environment = {
        **(variables(final_stage()) if name in our_services() else {}),
        **service.get("environment", {}),
    }
    given = {f"/run/secrets/{secret}" for secret in service.get("secrets", [])}

    named = {value for key, value in environment.items() if key.endswith("_FILE")}
    assert named <= given
    assert [
        key for key in environment if re.search(r"PASS|SECRET|TOKEN", key) and not key.endswith("_FILE")
    ] == []
    assert [key for key, value in environment.items() if "://" in value] == []


@each_of_ours
def test_each_service_has_the_secrets_of_its_role_alone(name: str) -> None:
    """Whoever gets into a worker cannot change the schema."""
    service = services()[name]

    assert set(service["secrets"]) == {
        Path(value).name for key, value in service["environment"].items() if key.endswith("_FILE")
    }
    assert ("store_migrator" in service["secrets"]) == (name == "migrate")


def test_every_secret_is_a_file_that_is_not_committed() -> None:
    """They are made on the machine, and stay there."""
    found = compose()["secrets"]
    used = {secret for service in services().values() for secret in service.get("secrets", [])}

    assert found == {name: {"file": f"./secrets/{name}"} for name in used}
    assert "secrets/" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
    if (ROOT / ".git").exists():
        asked = ["git", "ls-files", "deploy"]
        listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
        assert [line for line in listed.stdout.splitlines() if "secrets/" in line] == []


def test_no_file_of_a_deployment_holds_a_password() -> None:
    """Neither in a URL nor as a hash."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in DEPLOY.rglob("*")
        if path.is_file() and not {"secrets", "__pycache__"} & set(path.parts)
    }

    assert len(texts) >= 6
    assert [name for name, text in texts.items() if re.search(r"://[^\s/{}'\"]+:[^\s/{}'\"]+@", text)] == []
    assert [name for name, text in texts.items() if re.search(r'"password_hash": "[^"]', text)] == []
    assert [name for name, text in texts.items() if re.search(r"PASSWORD '", text)] == []
