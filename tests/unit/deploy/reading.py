"""Reads the files of ``deploy/`` the way Docker does, as far as the tests need it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
DEFINITIONS = DEPLOY / "rabbitmq" / "definitions.json"

#: Where the image's health check asks.
HEALTH_PORT = 8080

#: An unpacked sdist has the tests and no ``deploy/``.
IS_CHECKOUT = (ROOT / "Makefile").exists()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile, with the lines it was continued on."""

    name: str
    rest: str


def instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    split = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [Instruction(name.upper(), re.sub(r"\s+", " ", rest)) for name, rest in split]


@cache
def dockerfile() -> list[Instruction]:
    """Return the instructions of our Dockerfile."""
    return instructions(DOCKERFILE.read_text("utf-8"))


def final_stage() -> dict[str, list[str]]:
    """Return what the image itself is made of: the rests of the last stage's instructions, by name."""
    found = dockerfile()
    begin = max(place for place, instruction in enumerate(found) if instruction.name == "FROM")
    stage: dict[str, list[str]] = {}
    for instruction in found[begin:]:
        stage.setdefault(instruction.name, []).append(instruction.rest)
    return stage


def variables(stage: dict[str, list[str]]) -> dict[str, str]:
    """Return the environment that *stage* sets; none of our values has a space."""
    pairs = [pair for rest in stage.get("ENV", []) for pair in rest.split()]
    return dict(pair.split("=", 1) for pair in pairs)


def health_command(port: int) -> list[str]:
    """Return the image's health check, for a process that listens at *port*."""
    (check,) = final_stage()["HEALTHCHECK"]
    command = json.loads(check[check.index("[") :])
    assert command[0] == "python"
    assert sum(f", {HEALTH_PORT}," in part for part in command) == 1
    return [part.replace(f", {HEALTH_PORT},", f", {port},") for part in command]


@cache
def compose() -> dict[str, Any]:
    """Return the compose file, its anchors resolved."""
    found = yaml.safe_load(COMPOSE.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def services() -> dict[str, dict[str, Any]]:
    """Return the services by name."""
    found = compose()["services"]
    assert isinstance(found, dict)
    return found


def our_services() -> dict[str, dict[str, Any]]:
    """Return the services that run Tidewheel."""
    return {name: service for name, service in services().items() if is_ours(service["image"])}


def is_ours(image: str) -> bool:
    """Tell whether *image* is the one that our Dockerfile makes."""
    return image.startswith("tidewheel:")


def run_tool(name: str, *arguments: str | Path) -> str:
    """Run a checker that is installed beside the running Python; return all it said, or "" if it agreed."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name(name)), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    return "" if done.returncode == 0 else said or f"{name} ended with {done.returncode}"
