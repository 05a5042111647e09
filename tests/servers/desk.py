"""One place of a test session that provides servers, started when the first test asks for one.

With pytest-xdist the tests run in several processes: the process that runs those has the desk, and they ask
it over a Unix socket, so there is one server for all. It ends with the session.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.guardian import Guardian
from tests.servers.packages import Say
from tests.servers.places import ServerTrouble, private_folder, remove_folder
from tests.servers.provision import Provide

#: How long a test waits for a server: packages may have to be installed first.
_WAIT_S_MAX = 280.0


class Desk:
    """Provides each thing at most once, by its name, to this process and to those that ask at ``address``."""

    def __init__(self, offers: Mapping[str, Provide], say: Say) -> None:
        self._offers, self._say = offers, say
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._given: dict[str, Mapping[str, str]] = {}
        self._troubles: dict[str, ServerTrouble] = {}
        self._folder: Path | None = None

    @property
    def address(self) -> str:
        """Where other processes ask; listening begins when this is first read."""
        if self._folder is None:
            guardian = Guardian()
            self._open.callback(guardian.release)
            self._folder = private_folder("desk")
            guardian.remove(self._folder)
            self._open.callback(remove_folder, self._folder)
            server = _Listener(str(self._folder / "desk"), self)
            self._open.callback(server.server_close)
            thread = threading.Thread(target=server.serve_forever, name="desk", daemon=True)
            thread.start()
            self._open.callback(thread.join)
            self._open.callback(server.shutdown)
        return str(self._folder / "desk")

    def get(self, name: str) -> Mapping[str, str]:
        """Return how *name* is found, after having started it if nobody asked before."""
        with self._lock:
            if name in self._troubles:
                raise self._troubles[name]
            if name not in self._given:
                try:
                    provided = self._open.enter_context(self._offers[name](self._say))
                except ServerTrouble as trouble:
                    # Not once more for each test: it would take a minute each time.
                    self._troubles[name] = trouble
                    raise
                self._given[name] = provided.variables
            return self._given[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


class RemoteDesk:
    """The desk of another process."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, name: str) -> Mapping[str, str]:
        """Return how *name* is found."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_WAIT_S_MAX)
            line.connect(self._address)
            line.sendall(name.encode() + b"\n")
            with line.makefile("rb") as reader:
                answer = json.loads(reader.readline())
        if "trouble" in answer:
            raise ServerTrouble(answer["trouble"])
        variables = answer["variables"]
        assert isinstance(variables, dict)
        return variables


class _Listener(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, desk: Desk) -> None:
        self.desk = desk
        super().__init__(path, _Answer)


class _Answer(socketserver.StreamRequestHandler):
    """One question: a name, a line."""

    def handle(self) -> None:
        assert isinstance(self.server, _Listener)
        name = self.rfile.readline().decode().strip()
        answer: dict[str, object]
        try:
            answer = {"variables": dict(self.server.desk.get(name))}
        except Exception as problem:  # noqa: BLE001 - whatever it was, the test that asked must hear of it
            answer = {"trouble": f"{type(problem).__name__}: {problem}"}
        self.wfile.write(json.dumps(answer).encode() + b"\n")
