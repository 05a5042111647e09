"""A private RabbitMQ node for tests, from the scripts of this host's package.

It has a folder, ports, a cookie and a port mapper (epmd) of its own, and touches no service of the host. It
may be killed and started again under the same URL. What ``rabbitmqctl`` does is done over a socket of the
node's own (``control.erl``), which takes milliseconds. Every wait is bounded and says what went wrong.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import trustme

from tests.servers.control import USER, Control, binary, quoted
from tests.servers.guardian import Guardian
from tests.servers.places import ServerTrouble, free_port, private_folder, remove_folder, tail

VHOST = "tidewheel"

_START_S_MAX = 90.0
_STOP_S_MAX = 60.0
_ANSWER_S_MAX = 60.0
_ACCEPT_S_MAX = 30.0
_QUORUM_LOG_BYTES_MAX = 64 << 20
_SCRIPTS = (Path("/usr/lib/rabbitmq/bin"), Path("/opt/rabbitmq/sbin"))
_CONTROL = Path(__file__).with_name("control.erl")
_GREETING = b"AMQP\x00\x00\x09\x01"
_METHOD_FRAME = b"\x01"


def scripts() -> Path | None:
    """Return the folder with RabbitMQ's own scripts, or None; those in PATH insist on an account."""
    for folder in _SCRIPTS:
        if (folder / "rabbitmq-server").exists() and shutil.which("epmd"):
            return folder
    return None


class PrivateRabbit(Control):
    """A RabbitMQ node of the caller's own; a context manager that starts and removes it.

    With *tls* it also listens at ``tls_url``, with a certificate of the authority in ``authority_file``. With
    *management* it has the HTTP interface, at ``management_url``. *settings* are of the application
    ``rabbit``, each an Erlang term: ``{"consumer_timeout": "60000"}``. The folder is made in *parent*,
    else in memory where there is room.
    """

    def __init__(
        self,
        *,
        tls: bool = False,
        management: bool = False,
        settings: Mapping[str, str] | None = None,
        parent: Path | None = None,
    ) -> None:
        super().__init__(Path())
        self.settings = dict(settings or {})
        self.password = secrets.token_hex(8)
        self.port = self.tls_port = self.management_port = 0
        self._tls, self._management, self._parent = tls, management, parent
        self._node = f"tw{secrets.token_hex(4)}@localhost"
        self._mapper_port = self._distribution_port = 0
        self._folder: Path | None = None
        self._guardian: Guardian | None = None
        self._mapper: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """The folder with everything this node has."""
        assert self._folder is not None, "the node was never started"
        return self._folder

    @property
    def log(self) -> Path:
        """What the node says."""
        return self.folder / "log" / f"{self._node}.log"

    @property
    def url(self) -> str:
        """Where the node is, with a virtual host of its own."""
        return self.url_of(VHOST)

    def url_of(self, vhost: str) -> str:
        """Where *vhost* is."""
        return f"amqp://{USER}:{self.password}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    @property
    def tls_url(self) -> str:
        """Where the node is, encrypted."""
        assert self._tls
        return f"amqps://{USER}:{self.password}@localhost:{self.tls_port}/{quote(VHOST, safe='')}"

    @property
    def authority_file(self) -> Path:
        """The certificate of the authority that signed the node's, for clients."""
        assert self._tls
        return self.folder / "authority.pem"

    @property
    def management_url(self) -> str:
        """Where the HTTP interface is, with credentials."""
        assert self._management
        return f"http://{USER}:{self.password}@127.0.0.1:{self.management_port}"

    @property
    def pid(self) -> int | None:
        """The Erlang machine, while it runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Start the node, the first time with an empty folder, and wait until it takes connections."""
        assert self.pid is None, "the node runs already"
        if self._folder is None:
            self._prepare()
        self.control.unlink(missing_ok=True)
        folder = self.folder
        with (folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                [str(_script("rabbitmq-server")), "-eval", f"file:eval({quoted(str(_CONTROL))})"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                env=self._environment(),
            )
        assert self._guardian is not None
        self._guardian.watch(self._process.pid, gently=signal.SIGKILL)
        self._wait_for_control()
        self.wait_accepting()

    def stop(self) -> None:
        """Stop the node in an orderly way; its data stays."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerTrouble(
                f"RabbitMQ did not stop within {_STOP_S_MAX:.0f} s and was killed:\n{tail(self.log)}"
            ) from None

    def kill(self) -> None:
        """Kill the node with SIGKILL; its data is as the kill left it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End the node and remove all it has; no trace of it is left."""
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()
            self._mapper = None
        if self._folder is not None:
            remove_folder(self._folder)
            self._folder = None
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    # What rabbitmqctl does: also see ``Control``.

    def stop_app(self) -> None:
        """Stop the broker, its connections and listeners; the Erlang machine stays."""
        self.evaluate("rabbit:stop().")

    def start_app(self) -> None:
        """Start the broker again, and wait until it takes connections."""
        self.evaluate("rabbit:start().")
        self.wait_accepting()

    def renew(self) -> None:
        """See to it that the node runs, has no alarm, and nothing is in its virtual host."""
        if self.pid is None:
            self.start()
        if not self.evaluate("rabbit:is_running()."):
            self.start_app()
        self.clear_memory_alarm()
        self.delete_vhost(VHOST)
        self.add_vhost(VHOST)

    def list_queues(self, vhost: str = VHOST) -> list[dict[str, Any]]:
        """Return what is known of each queue."""
        return super().list_queues(vhost)

    def list_consumers(self, vhost: str = VHOST) -> list[dict[str, Any]]:
        """Return what is known of each consumer."""
        return super().list_consumers(vhost)

    def ctl(self, *arguments: str) -> str:
        """Run ``rabbitmqctl``, for what has no method here; it takes a second or two."""
        done = subprocess.run(
            [str(_script("rabbitmqctl")), "--quiet", "--node", self._node, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWER_S_MAX,
            env=self._environment(),
        )
        if done.returncode != 0:
            raise ServerTrouble(f"rabbitmqctl {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def wait_accepting(self) -> None:
        """Wait until the broker greets those who connect."""
        deadline = time.monotonic() + _ACCEPT_S_MAX
        while not _greets(self.port):
            if time.monotonic() > deadline:
                raise ServerTrouble(
                    f"RabbitMQ took no connection for {_ACCEPT_S_MAX:.0f} s:\n{tail(self.log)}"
                )
            time.sleep(0.02)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The first start.

    def _prepare(self) -> None:
        self._guardian = Guardian()
        self._folder = private_folder("mq", parent=self._parent)
        self._guardian.remove(self._folder)
        self.control = self._folder / "control"
        self.port, self._distribution_port, self._mapper_port = free_port(), free_port(), free_port()
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16), "ascii")
        cookie.chmod(0o400)
        plugins = "rabbitmq_management" if self._management else ""
        (self.folder / "plugins").write_text(f"[{plugins}].\n", "ascii")
        if self._tls:
            self._certify()
        if self._management:
            self.management_port = free_port()
        (self.folder / "advanced.config").write_text(self._configuration(), "utf-8")
        self._start_mapper()

    def _certify(self) -> None:
        self.tls_port = free_port()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.folder / "authority.pem"))
        issued = authority.issue_cert("localhost", "127.0.0.1")
        issued.private_key_pem.write_to_path(str(self.folder / "key.pem"))
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(self.folder / "certificate.pem"), append=True)

    def _configuration(self) -> str:
        """Return the configuration as Erlang terms: the plainer format takes the node two seconds to read."""
        rabbit = {
            "tcp_listeners": f'[{{"127.0.0.1", {self.port}}}]',
            "default_user": binary(USER),
            "default_pass": binary(self.password),
            "default_vhost": binary(VHOST),
            "loopback_users": "[]",
            "disk_free_limit": "10000000",
        }
        if self._tls:
            files = {"cacertfile": "authority.pem", "certfile": "certificate.pem", "keyfile": "key.pem"}
            options = [f"{{{name}, {quoted(str(self.folder / file))}}}" for name, file in files.items()]
            rabbit["ssl_listeners"] = f'[{{"127.0.0.1", {self.tls_port}}}]'
            rabbit["ssl_options"] = f"[{', '.join(options)}, {{verify, verify_none}}]"
        lines = [f"{{{name}, {term}}}" for name, term in (rabbit | self.settings).items()]
        listener = f'{{tcp_config, [{{ip, "127.0.0.1"}}, {{port, {self.management_port}}}]}}'
        applications = {
            "rabbit": ", ".join(lines),
            "rabbitmq_management": listener,
            "ra": f"{{wal_max_size_bytes, {_QUORUM_LOG_BYTES_MAX}}}",
        }
        return f"[{', '.join(f'{{{name}, [{terms}]}}' for name, terms in applications.items())}].\n"

    def _start_mapper(self) -> None:
        """Start the port mapper as a child of ours: one that Erlang starts would stay behind."""
        epmd = shutil.which("epmd")
        assert epmd is not None
        self._mapper = subprocess.Popen(
            [epmd, "-port", str(self._mapper_port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            start_new_session=True,
        )
        assert self._guardian is not None
        self._guardian.watch(self._mapper.pid, gently=signal.SIGKILL)

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "none.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            # The script then becomes the Erlang machine, instead of a shell that waits for it.
            "RUNNING_UNDER_SYSTEMD": "true",
            "TIDEWHEEL_CONTROL": str(self.control),
        }

    def _wait_for_control(self) -> None:
        """Wait until the node has booted, which is when its socket is there."""
        deadline = time.monotonic() + _START_S_MAX
        assert self._process is not None
        while not self.control.exists():
            if self._process.poll() is not None:
                code = self._process.returncode
                self._process = None
                raise ServerTrouble(f"RabbitMQ ended with {code} while it started:\n{self._said()}")
            if time.monotonic() > deadline:
                raise ServerTrouble(f"RabbitMQ did not start within {_START_S_MAX:.0f} s:\n{self._said()}")
            time.sleep(0.02)

    def _said(self) -> str:
        return f"{tail(self.folder / 'console')}\n{tail(self.log)}"


def _greets(port: int) -> bool:
    """Tell whether something at *port* speaks AMQP."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as line:
            line.sendall(_GREETING)
            return line.recv(1) == _METHOD_FRAME
    except OSError:
        return False


def _script(name: str) -> Path:
    folder = scripts()
    if folder is None:
        raise ServerTrouble("this host has no RabbitMQ; on Debian or Ubuntu: apt-get install rabbitmq-server")
    return folder / name
