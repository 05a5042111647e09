"""The script that makes a deployment's secrets: it makes each once, for its owner alone, and shows none."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

from tests.unit.deploy.reading import DEFINITIONS, DEPLOY, IS_CHECKOUT, compose

pytestmark = pytest.mark.skipif(not IS_CHECKOUT, reason="an unpacked sdist has no folders at the root")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script, imported from its file."""
    spec = importlib.util.spec_from_file_location("make_secrets", DEPLOY / "make_secrets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contents(folder: Path) -> dict[str, str]:
    """Return what each file of *folder* holds."""
    return {path.name: path.read_text("utf-8").strip() for path in folder.iterdir()}


def fits(password: str, hashed: str) -> bool:
    """Check a password as RabbitMQ does."""
    raw = base64.b64decode(hashed)
    return hashlib.sha256(raw[:4] + password.encode()).digest() == raw[4:]


def test_every_secret_of_the_compose_file_is_made(script: ModuleType, tmp_path: Path) -> None:
    """Under the names it has there."""
    folder = tmp_path / "secrets"

    code = script.main(["--folder", str(folder)])

    assert code == 0
    assert compose()["secrets"].keys() <= contents(folder).keys()


def test_others_cannot_get_at_them_and_containers_can(script: ModuleType, tmp_path: Path) -> None:
    """The folder is closed; a file that is mounted from it can be read under any user id."""
    folder = tmp_path / "secrets"

    script.main(["--folder", str(folder)])

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o444}


def test_every_password_is_another_one_and_a_long_one(script: ModuleType, tmp_path: Path) -> None:
    """Two deployments share none, nor do two roles."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        script.main(["--folder", str(folder)])

    passwords = [contents(folder)[name] for folder in folders for name in script.password_names()]
    assert len(set(passwords)) == len(passwords) == 24
    assert min(map(len, passwords)) >= 32


def test_doing_it_again_changes_nothing(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even the salts, so a running deployment is not disturbed."""
    folder = tmp_path / "secrets"
    script.main(["--folder", str(folder)])
    before = contents(folder)
    capsys.readouterr()

    script.main(["--folder", str(folder)])

    assert contents(folder) == before
    assert capsys.readouterr().out == f"{folder}: nothing to do\n"


def test_a_password_without_its_file_is_made_anew(script: ModuleType, tmp_path: Path) -> None:
    """The URL and the hash follow; other roles keep theirs."""
    folder = tmp_path / "secrets"
    script.main(["--folder", str(folder)])
    before = contents(folder)
    (folder / "rabbitmq_worker").unlink()

    script.main(["--folder", str(folder)])

    after = contents(folder)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"rabbitmq_worker", "broker_worker", "rabbitmq_definitions"}


def test_a_password_of_ones_own_is_kept_and_quoted_in_its_url(script: ModuleType, tmp_path: Path) -> None:
    """Whatever characters it has."""
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o700)
    (folder / "postgres_worker").write_text("p@ss/w:rd #1%\n", "utf-8")

    script.main(["--folder", str(folder), "--postgres", "db.example.net:6432/shop"])

    url = urlsplit(contents(folder)["store_worker"])
    assert unquote(url.password or "") == "p@ss/w:rd #1%"
    assert (url.scheme, url.username, url.hostname, url.port, url.path) == (
        "postgresql",
        "app_worker",
        "db.example.net",
        6432,
        "/shop",
    )


def test_the_definitions_are_the_committed_ones_with_the_hashes(script: ModuleType, tmp_path: Path) -> None:
    """Each user's hash is that of the password in its URL."""
    folder = tmp_path / "secrets"

    script.main(["--folder", str(folder)])

    found = contents(folder)
    made, committed = json.loads(found["rabbitmq_definitions"]), json.loads(DEFINITIONS.read_text("utf-8"))
    for user in made["users"]:
        role = user["name"].removeprefix("tidewheel-")
        url = urlsplit(found[f"broker_{role}"])
        assert (url.scheme, url.username, url.path) == ("amqp", user["name"], "/tidewheel")
        assert fits(url.password or "", user["password_hash"])
        user["password_hash"] = ""
    assert made == committed


def test_the_hash_is_the_one_of_the_brokers_documentation(script: ModuleType) -> None:
    """Salt and password, SHA-256, the salt in front, base 64: the documentation's own example."""
    hashed = script.hashed("test12", bytes.fromhex("908DC60A"))

    assert hashed == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_a_folder_that_is_open_to_others_is_refused(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not closed behind anybody's back: it may be theirs for something else."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)

    code = script.main(["--folder", str(folder)])

    assert code == 2
    assert f"chmod 700 {folder}" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_a_file_in_the_way_is_said(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message, not a traceback."""
    file = tmp_path / "file"
    file.write_text("", "utf-8")

    code = script.main(["--folder", str(file)])

    assert code == 2
    assert "cannot be used" in capsys.readouterr().err


def test_servers_elsewhere_are_reached_over_tls(script: ModuleType, tmp_path: Path) -> None:
    """With options that Postgres and RabbitMQ's clients read from their URLs."""
    folder = tmp_path / "secrets"
    places = [
        "postgresql://db.example.net/shop?sslmode=verify-full",
        "amqps://mq.example.net/shop?cafile=/run/ca.pem",
    ]

    script.main(["--folder", str(folder), "--postgres", places[0], "--rabbitmq", places[1]])

    found = contents(folder)
    assert found["store_keeper"].startswith("postgresql://app_keeper:")
    assert found["store_keeper"].endswith("@db.example.net/shop?sslmode=verify-full")
    assert found["broker_keeper"].startswith("amqps://tidewheel-keeper:")
    assert found["broker_keeper"].endswith("@mq.example.net/shop?cafile=/run/ca.pem")


@pytest.mark.parametrize(
    "place",
    [
        "db",
        "db:5432",
        "db:port/x",
        "u:p@db/x",
        "db/x/y",
        "db/x#y",
        "amqp://db/x",
        "mysql://db/x",
        "db/x?a=\n",
    ],
)
def test_a_place_that_would_make_no_url_is_refused(
    script: ModuleType, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Host, port and name, and nothing that would mean something else in a URL; nothing is made then."""
    code = script.main(["--folder", str(tmp_path / "secrets"), "--postgres", place])

    assert code == 2
    assert "is no HOST:PORT/NAME, and no postgresql:// URL" in capsys.readouterr().err
    assert not (tmp_path / "secrets").exists()


def test_no_secret_is_shown(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Terminals scroll, and logs are kept."""
    folder = tmp_path / "secrets"

    script.main(["--folder", str(folder)])

    said = "".join(capsys.readouterr())
    assert [name for name, text in contents(folder).items() if text in said] == []


def test_it_needs_nothing_but_python(tmp_path: Path) -> None:
    """It runs before anything is installed: without site-packages, and from anywhere."""
    command = [sys.executable, "-I", "-S", str(DEPLOY / "make_secrets.py"), "--folder", "made"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert contents(tmp_path / "made").keys() >= compose()["secrets"].keys()
