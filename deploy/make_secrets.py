"""Makes the secrets of a deployment: passwords, the URLs that hold them, and RabbitMQ's definitions.

    python deploy/make_secrets.py

writes them into ``deploy/secrets``, where ``compose.yaml`` expects them and .gitignore leaves them out. A
password that is there is kept, so doing it again changes nothing; without its file it is made anew. URLs are
always those of the servers that the command line names. The definitions are those of
``rabbitmq/definitions.json``, whose users cannot log in, with the hashes of the passwords. Nothing but
Python is needed, and no password is printed.

The folder is for its owner alone. The files in it can be read by everybody who gets at them: a container
reads a mounted file under a user id of its own, and with the mode that the file has outside.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import secrets
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE / "rabbitmq" / "definitions.json"
FOLDER = HERE / "secrets"

#: Who connects to Postgres; the accounts there are ``app_<role>``. The superuser only sets it up.
POSTGRES_ROLES = ("migrator", "worker", "keeper", "relay", "projector", "client")
#: Who connects to RabbitMQ; the users there are ``tidewheel-<role>``.
RABBITMQ_ROLES = ("worker", "keeper", "relay", "projector", "client")
#: The file with RabbitMQ's definitions.
DEFINITIONS = "rabbitmq_definitions"

_SALT_BYTES = 4
_PASSWORD_BYTES = 24
#: How a server may be named: the scheme may be left out, and options of its URL may follow.
_PLACE = re.compile(
    r"((?P<scheme>postgresql|amqps?)://)?"
    r"(?P<rest>[A-Za-z0-9.-]+(:[0-9]{1,5})?/[A-Za-z0-9_-]+(\?[A-Za-z0-9_=&./%-]+)?)"
)


class Refused(Exception):
    """What was asked for cannot be done; the message says what to do instead."""


def password_names() -> list[str]:
    """Return the files that hold nothing but a password."""
    postgres = [f"postgres_{role}" for role in ("superuser", *POSTGRES_ROLES)]
    return postgres + [f"rabbitmq_{role}" for role in RABBITMQ_ROLES]


def urls(passwords: Mapping[str, str], *, postgres: str, rabbitmq: str) -> dict[str, str]:
    """Return the file of each URL with what belongs into it; a server is ``host:port/name`` or a URL."""
    stores = {
        f"store_{role}": _url(postgres, "postgresql", f"app_{role}", passwords[f"postgres_{role}"])
        for role in POSTGRES_ROLES
    }
    brokers = {
        f"broker_{role}": _url(rabbitmq, "amqp", f"tidewheel-{role}", passwords[f"rabbitmq_{role}"])
        for role in RABBITMQ_ROLES
    }
    return stores | brokers


def definitions(
    template: Mapping[str, Any], passwords: Mapping[str, str], salts: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return RabbitMQ's definitions: *template*, with the hash of each user's password."""
    users = [
        {**user, "password_hash": hashed(passwords[_secret_of(user["name"])], salts[user["name"]])}
        for user in template["users"]
    ]
    return {**template, "users": users}


def hashed(password: str, salt: bytes) -> str:
    """Return *password* as RabbitMQ keeps it (``rabbit_password_hashing_sha256``)."""
    assert len(salt) == _SALT_BYTES
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _secret_of(user: str) -> str:
    return f"rabbitmq_{user.removeprefix('tidewheel-')}"


def _check(place: str, scheme: str) -> re.Match[str]:
    found = _PLACE.fullmatch(place)
    if found is None or not (found["scheme"] or scheme).startswith(scheme):
        raise Refused(f"{place!r} is no HOST:PORT/NAME, and no {scheme}:// URL without a user")
    return found


def _url(place: str, scheme: str, user: str, password: str) -> str:
    found = _check(place, scheme)
    return f"{found['scheme'] or scheme}://{user}:{quote(password, safe='')}@{found['rest']}"


# Files


def make(folder: Path, *, postgres: str, rabbitmq: str) -> list[str]:
    """Write what is missing or has changed into *folder*, and return the names of what was written."""
    _check(postgres, "postgresql")
    _check(rabbitmq, "amqp")
    _open(folder)
    passwords = {name: _kept(folder / name) or _new_password() for name in password_names()}
    template = json.loads(TEMPLATE.read_text("utf-8"))
    salts = _salts(folder / DEFINITIONS, [user["name"] for user in template["users"]])
    contents = {
        **passwords,
        **urls(passwords, postgres=postgres, rabbitmq=rabbitmq),
        DEFINITIONS: json.dumps(definitions(template, passwords, salts), indent=2),
    }
    changed = [name for name, text in contents.items() if _kept(folder / name) != text]
    for name in changed:
        _write(folder / name, contents[name])
    return changed


def _open(folder: Path) -> None:
    """Make *folder*, or refuse one that others may look into."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError as problem:
        raise Refused(f"{folder} cannot be used: {problem.strerror}") from None
    if mode & 0o077:
        raise Refused(f"{folder} is open to others: chmod 700 {folder}")


def _kept(file: Path) -> str | None:
    """Return what *file* holds; None if it is not there or is empty."""
    try:
        return file.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None


def _new_password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def _salts(file: Path, users: list[str]) -> dict[str, bytes]:
    """Return each user's salt: the one of the last time, so that an unchanged password stays unchanged."""
    text = _kept(file)
    users_before = [] if text is None else json.loads(text)["users"]
    before = {user["name"]: user["password_hash"] for user in users_before}
    known = {name: base64.b64decode(before[name])[:_SALT_BYTES] for name in users if before.get(name)}
    return {name: known.get(name) or secrets.token_bytes(_SALT_BYTES) for name in users}


def _write(file: Path, text: str) -> None:
    """Write *file* whole or not at all, for everybody to read and nobody to change."""
    part = file.with_name(f".{file.name}.part")
    part.unlink(missing_ok=True)
    part.write_text(text + "\n", "utf-8")
    part.chmod(0o444)
    part.replace(file)


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says, and return an exit code."""
    parser = argparse.ArgumentParser(description="Make the secrets of a deployment.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to, in place of deploy/secrets")
    parser.add_argument(
        "--postgres",
        metavar="PLACE",
        default="postgres:5432/tidewheel",
        help="HOST:PORT/DATABASE, or postgresql://HOST:PORT/DATABASE?OPTIONS",
    )
    parser.add_argument(
        "--rabbitmq",
        metavar="PLACE",
        default="rabbitmq:5672/tidewheel",
        help="HOST:PORT/VHOST, or amqps://HOST:PORT/VHOST?OPTIONS",
    )
    asked = parser.parse_args(arguments)
    try:
        changed = make(asked.folder, postgres=asked.postgres, rabbitmq=asked.rabbitmq)
    except Refused as problem:
        print(problem, file=sys.stderr)
        return 2
    print(f"{asked.folder}: wrote {', '.join(changed)}" if changed else f"{asked.folder}: nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
