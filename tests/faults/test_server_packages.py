"""How a host without servers gets them: quietly, and with everything put back that was changed for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.servers.packages import Package, ensure
from tests.servers.places import ServerTrouble

#: An apt-get that writes down what it was asked and what a package's scripts would have met meanwhile.
APT = """#!/bin/sh
cd "{root}"
echo "$@" >> asked
[ "$1" = install ] || exit 100
usr/sbin/policy-rc.d; echo "$?" > policy
cat etc/postgresql-common/createcluster.d/*.conf > cluster
mkdir -p etc/systemd/system/multi-user.target.wants
touch etc/systemd/system/multi-user.target.wants/server.service
touch {installed}
"""

SYSTEMCTL = """#!/bin/sh
echo "$@" >> "{root}/disabled"
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a host on which this process is root, with an apt-get that installs a server."""
    commands = tmp_path / "bin"
    (tmp_path / "usr/sbin").mkdir(parents=True)
    commands.mkdir()
    for name, text in (("apt-get", APT), ("systemctl", SYSTEMCTL)):
        (commands / name).write_text(text.format(root=tmp_path, installed="server"), "utf-8")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def server(root: Path) -> Package:
    """Return a package that is there when the file ``server`` is."""
    return Package(
        name="some-server",
        what="server of some kind",
        variable="TIDEWHEEL_TEST_SOME",
        units=("server.service",),
        found=lambda: root / "server" if (root / "server").exists() else None,
    )


def test_a_server_that_is_there_is_not_installed(root: Path) -> None:
    """Nothing is asked of the host, and nothing said."""
    (root / "server").touch()
    said: list[str] = []

    found = ensure(server(root), said.append, root=root)

    assert found == root / "server"
    assert said == []
    assert not (root / "asked").exists()


def test_a_missing_server_is_installed_without_being_started(root: Path) -> None:
    """Lists are refreshed first; no service starts meanwhile, no cluster is made, nothing stays enabled."""
    said: list[str] = []

    ensure(server(root), said.append, root=root)

    update, install = (root / "asked").read_text("utf-8").splitlines()
    assert update.startswith("update ")
    assert install.startswith("install ")
    assert install.endswith(" --no-install-recommends some-server")
    assert (root / "policy").read_text("utf-8").strip() == "101"
    assert (root / "cluster").read_text("utf-8") == "create_main_cluster = false\n"
    assert (root / "disabled").read_text("utf-8") == "disable server.service\n"
    assert len(said) == 1
    assert "some-server" in said[0]


def test_what_an_installation_changed_is_put_back(root: Path) -> None:
    """A host's own policy is there again, as it was; what was not there is gone."""
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 0\n", "ascii")
    policy.chmod(0o700)

    ensure(server(root), lambda _: None, root=root)

    assert policy.read_text("ascii") == "#!/bin/sh\nexit 0\n"
    assert stat.S_IMODE(policy.stat().st_mode) == 0o700
    assert [path.name for path in policy.parent.iterdir()] == ["policy-rc.d"]
    assert not (root / "etc/postgresql-common").exists()


def test_an_installation_that_fails_is_reported_and_put_back(root: Path) -> None:
    """The end of what apt-get said is in the error."""
    (root / "bin/apt-get").write_text("#!/bin/sh\necho 'E: no such package'\nexit 100\n", "ascii")

    with pytest.raises(ServerTrouble, match="E: no such package"):
        ensure(server(root), lambda _: None, root=root)

    assert list((root / "usr/sbin").iterdir()) == []


def test_who_may_not_install_is_told_what_to_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is there to be copied, and the other way out is named."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(ServerTrouble) as caught:
        ensure(server(root), lambda _: None, root=root)

    assert "sudo apt-get install --no-install-recommends some-server" in str(caught.value)
    assert "TIDEWHEEL_TEST_SOME" in str(caught.value)
    assert not (root / "asked").exists()


def test_a_tool_may_need_several_packages_and_has_no_other_way_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for together; nobody is told to give the URL of a tool."""
    tool = Package(name="tool its-friend", what="tool", found=server(root).found)

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ServerTrouble) as caught:
        ensure(tool, lambda _: None, root=root)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ensure(tool, lambda _: None, root=root)

    assert str(caught.value).endswith("Run: sudo apt-get install --no-install-recommends tool its-friend")
    assert (root / "asked").read_text("utf-8").endswith(" --no-install-recommends tool its-friend\n")
