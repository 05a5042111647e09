"""Settings: what is passed, then the environment, then the default; and the page about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest

from tidewheel import InvalidRequest
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.settings import ConnectionSettings, Key, Settings, Unit, fields_of
from tidewheel.sdk.settings_page import CLASSES, document, load_class


class Knobs(Settings, frozen=True, kw_only=True):
    """One of each."""

    slots: Annotated[int, Key("TIDEWHEEL_SLOTS", "Steps at a time.", least=1, most=1000)] = 64
    lease: Annotated[float, Key("TIDEWHEEL_LEASE", "Until taken for dead.", Unit.SECONDS, least=0.5)] = 10.0
    sticky: Annotated[bool, Key("TIDEWHEEL_STICKY", "Keep runs in memory.")] = True
    queues: Annotated[tuple[str, ...], Key("TIDEWHEEL_QUEUES", "The queues served.")] = ("default",)
    host: Annotated[str | None, Key("TIDEWHEEL_HOST", "What to call this machine | host.")] = None


def test_the_defaults_need_no_environment() -> None:
    """The embedded default works from nothing."""
    settings = ConnectionSettings.from_environment({})

    assert settings == ConnectionSettings()
    assert (settings.store, settings.broker, settings.namespace) == (
        "sqlite:///tidewheel.db",
        "embedded://",
        "default",
    )


def test_what_is_passed_comes_before_the_environment() -> None:
    """Flags, then variables, then defaults; None is not passed, and nothing is not set."""
    environ = {"TIDEWHEEL_STORE": "postgresql://db", "TIDEWHEEL_NAMESPACE": "blue", "TIDEWHEEL_BROKER": " "}

    settings = ConnectionSettings.from_environment(environ, namespace="green", store=None)

    assert (settings.store, settings.broker, settings.namespace) == (
        "postgresql://db",
        "embedded://",
        "green",
    )


def test_the_processs_own_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever passes no environment means the real one."""
    monkeypatch.setenv("TIDEWHEEL_NAMESPACE", "blue")

    assert ConnectionSettings.from_environment().namespace == "blue"


def test_each_type_is_read_from_text() -> None:
    """Numbers, durations, switches and lists."""
    knobs = Knobs.from_environment(
        {
            "TIDEWHEEL_SLOTS": "8",
            "TIDEWHEEL_LEASE": "1.5",
            "TIDEWHEEL_STICKY": "FALSE",
            "TIDEWHEEL_QUEUES": "a, b,,c ",
            "TIDEWHEEL_HOST": "pod-1",
        }
    )

    assert knobs == Knobs(slots=8, lease=1.5, sticky=False, queues=("a", "b", "c"), host="pod-1")


@pytest.mark.parametrize(("text", "meant"), [("1", True), ("true", True), ("0", False), ("False", False)])
def test_switches_are_one_and_zero_true_and_false(text: str, meant: bool) -> None:
    """Nothing else is guessed at."""
    assert Knobs.from_environment({"TIDEWHEEL_STICKY": text}).sticky is meant


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("TIDEWHEEL_STICKY", "maybe", "'maybe' cannot be used; write 1 or 0, true or false"),
        ("TIDEWHEEL_SLOTS", "many", "'many' cannot be used; write a whole number from 1 to 1,000"),
        ("TIDEWHEEL_SLOTS", "0", "0 cannot be used; write a whole number from 1 to 1,000"),
        ("TIDEWHEEL_SLOTS", "1e3", "write a whole number"),
        ("TIDEWHEEL_SLOTS", "9" * 5000, "write a whole number"),
        ("TIDEWHEEL_LEASE", "10s", "write a number of seconds, at least 0.5"),
        ("TIDEWHEEL_LEASE", "nan", "write a number of seconds"),
        ("TIDEWHEEL_LEASE", "inf", "write a number of seconds"),
        ("TIDEWHEEL_LEASE", "-1", "write a number of seconds"),
        ("TIDEWHEEL_HOST", "a\0b", "write text"),
    ],
)
def test_a_bad_variable_is_named_with_what_to_write(variable: str, text: str, said: str) -> None:
    """Whoever reads the error need not read the documentation."""
    with pytest.raises(InvalidRequest) as caught:
        Knobs.from_environment({variable: text})

    assert str(caught.value).startswith(f"{variable}: ")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"slots": True}, "slots: True cannot be used"),
        ({"slots": 1.5}, "slots: 1.5"),
        ({"slots": 10**400}, "slots: 1000"),
        ({"lease": "1"}, "lease: '1'"),
        ({"lease": float("nan")}, "lease: nan"),
        ({"sticky": 1}, "sticky: 1 cannot be used; write True or False"),
        ({"queues": ["a"]}, "queues: "),
        ({"queues": ("",)}, "queues: "),
        ({"host": ""}, "host: ''"),
    ],
)
def test_a_bad_argument_is_named_as_the_argument_it_is(wrong: dict[str, Any], said: str) -> None:
    """A value made in code is checked like one that was read."""
    for make in (Knobs, lambda **passed: Knobs.from_environment({}, **passed)):
        with pytest.raises(InvalidRequest) as caught:
            make(**wrong)

        assert str(caught.value).startswith(said)


@pytest.mark.parametrize("url", ["tidewheel.db", "://", "postgres:secret@host"])
def test_a_bad_url_is_refused_without_being_quoted(url: str) -> None:
    """It may hold a password."""
    with pytest.raises(
        InvalidRequest, match="TIDEWHEEL_STORE: this is no URL; write something like"
    ) as caught:
        ConnectionSettings.from_environment({"TIDEWHEEL_STORE": url})

    assert "secret" not in str(caught.value)


def test_what_may_hold_a_password_is_read_from_a_file(tmp_path: Path) -> None:
    """A mounted secret is a file, mostly with a newline at its end; the environment names it."""
    store, broker = tmp_path / "store", tmp_path / "broker"
    store.write_text("postgresql://worker:hidden@db/tidewheel\n", "utf-8")
    broker.write_text("amqp://worker:hidden@bus/tidewheel", "utf-8")

    settings = ConnectionSettings.from_environment(
        {"TIDEWHEEL_STORE_FILE": f" {store} ", "TIDEWHEEL_BROKER_FILE": str(broker)}
    )

    assert (settings.store, settings.broker) == (
        "postgresql://worker:hidden@db/tidewheel",
        "amqp://worker:hidden@bus/tidewheel",
    )


def test_a_flag_comes_before_a_file_which_is_then_not_read() -> None:
    """Whoever says where the store is need not have the secret of the deployment."""
    settings = ConnectionSettings.from_environment(
        {"TIDEWHEEL_STORE_FILE": "/nowhere/at/all"}, store="sqlite:///mine.db"
    )

    assert settings.store == "sqlite:///mine.db"


def test_a_variable_and_its_file_cannot_both_be_set(tmp_path: Path) -> None:
    """Which of the two was meant is not guessed; a variable that is set to nothing is not set."""
    file = tmp_path / "store"
    file.write_text("postgresql://file", "utf-8")
    both = {"TIDEWHEEL_STORE": "postgresql://variable:hidden@db", "TIDEWHEEL_STORE_FILE": str(file)}

    with pytest.raises(
        InvalidRequest, match="TIDEWHEEL_STORE and TIDEWHEEL_STORE_FILE are both set"
    ) as caught:
        ConnectionSettings.from_environment(both)

    assert "hidden" not in str(caught.value)
    assert ConnectionSettings.from_environment(both | {"TIDEWHEEL_STORE": ""}).store == "postgresql://file"
    assert (
        ConnectionSettings.from_environment(both | {"TIDEWHEEL_STORE_FILE": ""}).store
        == both["TIDEWHEEL_STORE"]
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b" \n", "is empty; write the value into it"),
        (b"hidden \xff", "is not text in UTF-8"),
        (b"hidden" * 20_000, "has more than 65,536 bytes; is it the right file?"),
        (b"hidden@db", "this is no URL; write something like"),
        (b"postgresql://hidden\nsqlite:///x", "its value cannot be used; write text"),
    ],
)
def test_a_bad_file_is_named_and_not_quoted(tmp_path: Path, content: bytes | None, said: str) -> None:
    """The error says which variable and what to do; what is in the file stays there."""
    file = tmp_path / "store"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(InvalidRequest) as caught:
        ConnectionSettings.from_environment({"TIDEWHEEL_STORE_FILE": str(file)})

    assert str(caught.value).startswith("TIDEWHEEL_STORE_FILE: ")
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no file without an end")
def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    """Whatever the variable names, reading it is bounded."""
    with pytest.raises(InvalidRequest, match="'/dev/zero' has more than 65,536 bytes"):
        ConnectionSettings.from_environment({"TIDEWHEEL_STORE_FILE": "/dev/zero"})


def test_what_holds_no_password_has_no_file() -> None:
    """Only secrets are worth a file; a number in one would only be harder to find."""
    assert {field.key.file_variable for field in fields_of(Knobs)} == {None}
    assert [field.key.file_variable for field in fields_of(ConnectionSettings)] == [
        "TIDEWHEEL_STORE_FILE",
        "TIDEWHEEL_BROKER_FILE",
        None,
    ]


def test_a_bad_namespace_is_refused() -> None:
    """Queues and routing keys are named after it."""
    with pytest.raises(InvalidRequest, match=r"TIDEWHEEL_NAMESPACE: namespace 'a\.b' is not allowed"):
        ConnectionSettings.from_environment({"TIDEWHEEL_NAMESPACE": "a.b"})


def test_the_limits_are_those_of_the_design() -> None:
    """2 MiB, 64 KiB, 50,000 and 1,000,000 events, all of which can be set."""
    assert Limits() == Limits(
        payload_max_bytes=2_097_152,
        signal_max_bytes=65_536,
        history_warning_events=50_000,
        history_max_events=1_000_000,
    )
    assert Limits.from_environment({"TIDEWHEEL_SIGNAL_MAX_BYTES": "2048"}).signal_max_bytes == 2048


def test_settings_are_frozen() -> None:
    """A configuration does not change while it is used."""
    with pytest.raises(AttributeError):
        ConnectionSettings().namespace = "other"  # type: ignore[misc]  # that it is refused is the point


def test_the_page_lists_every_key_with_default_and_meaning() -> None:
    """It is generated, so it cannot leave one out."""
    page = document([*CLASSES, Knobs])

    for cls in (*CLASSES, Knobs):
        for field in fields_of(cls):
            assert f"| `{field.key.variable}` |" in page
    assert "| `TIDEWHEEL_LEASE` | `10` s | Until taken for dead. |" in page
    assert "| `TIDEWHEEL_STICKY` | `1` | Keep runs in memory. |" in page
    assert "| `TIDEWHEEL_HOST` | none | What to call this machine \\| host. |" in page
    assert "| `TIDEWHEEL_STORE_FILE` | none | A file that holds `TIDEWHEEL_STORE`, in place of it. |" in page
    assert "| `TIDEWHEEL_PAYLOAD_MAX_BYTES` | `2097152` (2 MiB) |" in page


def test_classes_of_higher_folders_are_found_by_name() -> None:
    """The page is made below the folders that it also documents."""
    assert load_class("tidewheel.sdk.limits:Limits") is Limits
