"""A private RabbitMQ node for tests, from this host's package (see ``packages`` where it has none).

It has a folder, ports, a cookie and a port mapper (epmd) of its own, and touches no service of the host. It
may be killed and started again under the same URL. What ``rabbitmqctl`` does is done over a socket of the
node's own (``control``), which takes milliseconds. Every wait is bounded and says what went wrong.
"""

from __future__ import annotations

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

from tests.servers.control import USER, Control, quoted
from tests.servers.guardian import Guardian
from tests.servers.node_folder import VHOST, NodeFolder, Ports
from tests.servers.packages import RABBITMQ, ensure
from tests.servers.places import ServerTrouble, private_folder, remove_folder, tail

_START_S_MAX = 120.0
_STOP_S_MAX = 60.0
_COMMAND_S_MAX = 60.0
_ACCEPT_S_MAX = 30.0
_PORTS_TRIED_MAX = 3
_CONTROL = Path(__file__).with_name("control.erl")
_GREETING = b"AMQP\x00\x00\x09\x01"
_METHOD_FRAME = b"\x01"


class PrivateRabbit(Control):
    """A RabbitMQ node of the caller's own; a context manager that starts and removes it.

    With *tls* it also listens at ``tls_url``, with a certificate of the authority in ``authority_file``. With
    *management* it has the HTTP interface, at ``management_url``. *settings* are of the application
    ``rabbit``, each an Erlang term: ``{"consumer_timeout": "60000"}``; *configuration* is a whole
    ``rabbitmq.conf``, over which the node's own ports win. The folder is made in *parent*, else in memory if
    there is room.
    """

    def __init__(
        self,
        *,
        tls: bool = False,
        management: bool = False,
        settings: Mapping[str, str] | None = None,
        configuration: str | None = None,
        parent: Path | None = None,
    ) -> None:
        super().__init__(Path())
        self.settings, self._configuration = dict(settings or {}), configuration
        self.password = secrets.token_hex(8)
        self._tls, self._management, self._parent = tls, management, parent
        self._has: NodeFolder | None = None
        self._guardian: Guardian | None = None
        self._mapper: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def node(self) -> NodeFolder:
        """Everything that the node has: its name, its ports, its files."""
        assert self._has is not None, "the node was never started"
        return self._has

    @property
    def folder(self) -> Path:
        """The folder with all of that."""
        return self.node.path

    @property
    def port(self) -> int:
        """Where the node listens for clients."""
        return self.node.ports.amqp

    @property
    def log(self) -> Path:
        """What the node says."""
        return self.node.log

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
        return f"amqps://{USER}:{self.password}@localhost:{self.node.ports.tls}/{quote(VHOST, safe='')}"

    @property
    def authority_file(self) -> Path:
        """The certificate of the authority that signed the node's, for clients."""
        assert self._tls
        return self.node.authority

    @property
    def management_url(self) -> str:
        """Where the HTTP interface is, with credentials."""
        assert self._management
        return f"http://{USER}:{self.password}@127.0.0.1:{self.node.ports.management}"

    @property
    def pid(self) -> int | None:
        """The Erlang machine, while it runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Start the node, the first time with an empty folder, and wait until it takes connections."""
        assert self.pid is None, "the node runs already"
        new = self._has is None
        for left in reversed(range(_PORTS_TRIED_MAX)):
            if self._has is None:
                self._prepare()
            try:
                self._boot()
                return
            except ServerTrouble as trouble:
                # Somebody may have taken a port since it was found free; a node that has data keeps its own.
                if not new or not left or "eaddrinuse" not in str(trouble):
                    raise
                self.close()

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
        if self._has is not None:
            remove_folder(self._has.path)
            self._has = None
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    # What rabbitmqctl does; more of it is in ``Control``.

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
            [str(self.node.scripts / "rabbitmqctl"), "--quiet", "--node", self.node.name, *arguments],
            cwd=self.node.path,
            capture_output=True,
            text=True,
            check=False,
            timeout=_COMMAND_S_MAX,
            env=self.node.environment(),
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

    def _prepare(self) -> None:
        scripts = ensure(RABBITMQ)
        self._guardian = Guardian()
        folder = private_folder("mq", parent=self._parent)
        self._guardian.remove(folder)
        self._has = NodeFolder(
            path=folder,
            scripts=scripts,
            password=self.password,
            tls=self._tls,
            management=self._management,
            settings=self.settings,
            configuration=self._configuration,
            ports=Ports(),
        )
        self._has.write()
        self.control = self._has.control
        self._start_mapper()

    def _start_mapper(self) -> None:
        """Start the port mapper as a child of ours: one that Erlang starts would stay behind."""
        epmd = shutil.which("epmd")
        assert epmd is not None
        assert self._guardian is not None
        self._mapper = subprocess.Popen(
            [epmd, "-port", str(self.node.ports.mapper), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.node.path,
            start_new_session=True,
        )
        self._guardian.watch(self._mapper.pid, gently=signal.SIGKILL)

    def _boot(self) -> None:
        """Start the Erlang machine and wait for the broker."""
        self.control.unlink(missing_ok=True)
        with self.node.console.open("ab") as console:
            self._process = subprocess.Popen(
                [str(self.node.scripts / "rabbitmq-server"), "-eval", f"file:eval({quoted(str(_CONTROL))})"],
                cwd=self.node.path,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                env=self.node.environment(),
            )
        assert self._guardian is not None
        self._guardian.watch(self._process.pid, gently=signal.SIGKILL)
        deadline = time.monotonic() + _START_S_MAX
        # The socket is there when the broker has booted.
        while not self.control.exists():
            if self._process.poll() is not None:
                code, self._process = self._process.returncode, None
                raise ServerTrouble(f"RabbitMQ ended with {code} while it started:\n{self._said()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerTrouble(f"RabbitMQ did not start within {_START_S_MAX:.0f} s:\n{self._said()}")
            time.sleep(0.02)
        self.wait_accepting()

    def _said(self) -> str:
        return f"{tail(self.node.console)}\n{tail(self.log)}"


def _greets(port: int) -> bool:
    """Tell whether something at *port* speaks AMQP."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2.0) as line:
            line.sendall(_GREETING)
            return line.recv(1) == _METHOD_FRAME
    except OSError:
        return False
