"""The folder of a private RabbitMQ node, as it is before the node's first start.

It holds the node's cookie, configuration, certificates and, after the start, its data and logs. The
environment that the package's scripts are run with names them all, so that nothing of the host's own
configuration, and no other node, is ever looked at.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from tests.servers.control import USER, binary, quoted
from tests.servers.places import free_port

VHOST = "tidewheel"

_QUORUM_LOG_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where a node listens: for clients, for other Erlang machines, and the port mapper's own port."""

    amqp: int = field(default_factory=free_port)
    tls: int = field(default_factory=free_port)
    management: int = field(default_factory=free_port)
    distribution: int = field(default_factory=free_port)
    mapper: int = field(default_factory=free_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFolder:
    """Everything that a node has, at *path*; *scripts* are those of the package."""

    path: Path
    scripts: Path
    password: str
    tls: bool
    management: bool
    settings: Mapping[str, str]
    configuration: str | None
    ports: Ports
    name: str = field(default_factory=lambda: f"tw{secrets.token_hex(4)}@localhost")

    @property
    def log(self) -> Path:
        """What the node says once it can log."""
        return self.path / "log" / f"{self.name}.log"

    @property
    def console(self) -> Path:
        """What the node says before that."""
        return self.path / "console"

    @property
    def control(self) -> Path:
        """The socket at which the node answers expressions."""
        return self.path / "control"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signed the node's."""
        return self.path / "authority.pem"

    def write(self) -> None:
        """Write what has to be there before the node is first started."""
        cookie = self.path / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16), "ascii")
        cookie.chmod(0o400)
        plugins = "rabbitmq_management" if self.management else ""
        (self.path / "plugins").write_text(f"[{plugins}].\n", "ascii")
        if self.tls:
            self._certify()
        if self.configuration is not None:
            self._plain_configuration.write_text(self.configuration, "utf-8")
        elif not self.management:
            self._leave_plugins_out()
        (self.path / "advanced.config").write_text(self._terms(), "utf-8")

    def environment(self) -> dict[str, str]:
        """Return the environment for the package's scripts."""
        trimmed = self.path / "home" / "sbin"
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(self.path),
            "ERL_EPMD_PORT": str(self.ports.mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SCRIPTS_DIR": str(trimmed if trimmed.exists() else self._installed),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_PORT": str(self.ports.amqp),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self.ports.distribution),
            "RABBITMQ_MNESIA_BASE": str(self.path / "data"),
            "RABBITMQ_LOG_BASE": str(self.path / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.path / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self._plain_configuration),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.path / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_PID_FILE": str(self.path / "pid"),
            # The script then becomes the Erlang machine, instead of a shell that waits for it.
            "RUNNING_UNDER_SYSTEMD": "true",
            "TIDEWHEEL_CONTROL": str(self.control),
        }

    @property
    def _plain_configuration(self) -> Path:
        """A configuration in RabbitMQ's own format; unless it is named, the node reads the host's."""
        return self.path / "rabbitmq.conf"

    @property
    def _installed(self) -> Path:
        """Where the scripts really are, beside the applications."""
        return (self.scripts / "rabbitmq-server").resolve().parent

    def _certify(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.authority))
        issued = authority.issue_cert("localhost", "127.0.0.1")
        issued.private_key_pem.write_to_path(str(self.path / "key.pem"))
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(self.path / "certificate.pem"), append=True)

    def _leave_plugins_out(self) -> None:
        """Make a home of RabbitMQ without the plugins: looking through them is half of what a start costs."""
        installed = self._installed
        applications = installed.parent / "plugins"
        if not applications.is_dir():
            return
        home = self.path / "home"
        (home / "plugins").mkdir(parents=True)
        (home / "sbin").symlink_to(installed)
        (home / "escript").symlink_to(installed.parent / "escript")
        for application in applications.iterdir():
            if not application.name.startswith("rabbitmq_") or application.name.startswith(
                "rabbitmq_prelaunch"
            ):
                (home / "plugins" / application.name).symlink_to(application)

    def _terms(self) -> str:
        """Return the configuration as Erlang terms: the plainer format takes a node two seconds to read."""
        rabbit = {
            "tcp_listeners": f'[{{"127.0.0.1", {self.ports.amqp}}}]',
            "default_user": binary(USER),
            "default_pass": binary(self.password),
            "default_vhost": binary(VHOST),
            "loopback_users": "[]",
            "disk_free_limit": "10000000",
        }
        if self.tls:
            files = {"cacertfile": "authority.pem", "certfile": "certificate.pem", "keyfile": "key.pem"}
            options = [f"{{{name}, {quoted(str(self.path / file))}}}" for name, file in files.items()]
            rabbit["ssl_listeners"] = f'[{{"127.0.0.1", {self.ports.tls}}}]'
            rabbit["ssl_options"] = f"[{', '.join(options)}, {{verify, verify_none}}]"
        terms = [f"{{{name}, {term}}}" for name, term in {**rabbit, **self.settings}.items()]
        listener = f'[{{ip, "127.0.0.1"}}, {{port, {self.ports.management}}}]'
        applications = {
            "rabbit": ", ".join(terms),
            "rabbitmq_management": f"{{tcp_config, {listener}}}",
            "ra": f"{{wal_max_size_bytes, {_QUORUM_LOG_BYTES_MAX}}}",
        }
        return f"[{', '.join(f'{{{name}, [{terms}]}}' for name, terms in applications.items())}].\n"
