"""``dev``, ``up``, ``worker``, ``keeper``, ``relay``, ``projector``: from a command line to processes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tidewheel.broker.protocol import Broker
from tidewheel.broker.topology import SHARDS
from tidewheel.cli import apps, logs, output
from tidewheel.cli.connecting import Where
from tidewheel.cli.exit_codes import ExitCode
from tidewheel.cli.failure import Failure
from tidewheel.cli.roles.banner import Banner, contents_of, start_command
from tidewheel.cli.roles.charge import Charge, Link
from tidewheel.cli.roles.process import Made, Plan, leave_stuck_threads, work
from tidewheel.cli.roles.supervising import supervise
from tidewheel.cli.roles.witness import watched
from tidewheel.outbox.config import RelayConfig
from tidewheel.outbox.relay import Relay
from tidewheel.outbox.watching import BacklogWatch
from tidewheel.projector.config import ProjectorConfig
from tidewheel.projector.projection_sink import ProjectionSink
from tidewheel.projector.projector import Projector
from tidewheel.sdk import telling
from tidewheel.sdk.app import App
from tidewheel.sdk.limits import Limits
from tidewheel.sdk.settings import ConnectionSettings
from tidewheel.store.protocol import Store
from tidewheel.telemetry import switch
from tidewheel.workers.config import EventLoopConfig, KeeperConfig, ProcessConfig, WorkerConfig
from tidewheel.workers.event_loop import run
from tidewheel.workers.health import Health
from tidewheel.workers.keeper import Keeper
from tidewheel.workers.process import Role
from tidewheel.workers.watchdog import Watchdog
from tidewheel.workers.worker import Worker
from tidewheel.workers.write_budget import StateStoreConfig

#: The commands whose processes have these roles.
_KEEPING = frozenset({"dev", "up", "keeper"})
_RELAYING = frozenset({"dev", "up", "relay"})
_PROJECTING = frozenset({"dev", "up", "projector"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says beside where everything is; None where it says nothing."""

    level: str
    as_json: bool
    queues: list[str] | None = None
    slots: int | None = None
    grace_s: float | None = None
    processes: int | None = None
    health: str | None = None
    #: What a supervisor says to its child.
    supervised: str | None = None

    def worker_config(self) -> WorkerConfig:
        """Return the flags, then the environment, then the defaults."""
        queues = None
        if self.queues:
            queues = tuple(name.strip() for given in self.queues for name in given.split(",") if name.strip())
        return WorkerConfig.from_environment(queues=queues, slots=self.slots, grace_s=self.grace_s)

    def process_config(self) -> ProcessConfig:
        """Return the same for the process; a child of a supervisor has neither children nor health."""
        config = ProcessConfig.from_environment(processes=self.processes, health=self.health)
        if self.supervised is None:
            return config
        return ProcessConfig(connect_timeout_s=config.connect_timeout_s)

    def flags(self) -> list[str]:
        """Return what a child is told too."""
        flags = ["--log-level", self.level, *(["--json"] if self.as_json else [])]
        for queue in self.queues or []:
            flags += ["--queue", queue]
        if self.slots is not None:
            flags += ["--slots", str(self.slots)]
        if self.grace_s is not None:
            flags += ["--grace", str(self.grace_s)]
        return flags


def dev_where(folder: str | None, store: str | None, broker: str | None, namespace: str | None) -> Where:
    """Return where ``dev`` keeps its things: *folder*, unless a store is named."""
    if folder is None:
        return Where(store, broker, namespace)
    if store is not None:
        message = "--dir and --store both say where the store is"
        raise Failure.usage(message, "tidewheel dev")
    path = Path(folder).resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        message = f"folder {folder!r} cannot be used: {problem.strerror}"
        raise Failure.invalid(message) from None
    store = f"sqlite:///{quote(str(path / 'tidewheel.db'))}"
    # Unless a broker is named, its file is beside the store's, whatever the environment says.
    return Where(store, broker or "embedded://", namespace)


def dev(reference: str, where: Where, options: Options) -> ExitCode:
    """Run all roles in one process, say how to use them, and bring the store up to date first."""
    # What a fleet is told by its environment is not for a laptop.
    return _serve("dev", reference, where, options, ProcessConfig(connect_timeout_s=0.0))


def up(reference: str, where: Where, options: Options) -> ExitCode:
    """Run all roles on the configured store and broker."""
    config = options.process_config()
    if config.processes == 1:
        return _serve("up", reference, where, options, config)
    return _supervise("up", reference, where, options, config)


def worker(reference: str, where: Where, options: Options) -> ExitCode:
    """Run workers alone."""
    config = options.process_config()
    if config.processes == 1:
        return _serve("worker", reference, where, options, config)
    return _supervise("worker", reference, where, options, config)


def keeper(where: Where, options: Options) -> ExitCode:
    """Run a keeper alone."""
    return _serve("keeper", None, where, options, options.process_config())


def relay(where: Where, options: Options) -> ExitCode:
    """Run a relay alone."""
    return _serve("relay", None, where, options, options.process_config())


def projector(reference: str | None, where: Where, options: Options) -> ExitCode:
    """Run a projector alone, with the projections of the app that *reference* names."""
    return _serve("projector", reference, where, options, options.process_config())


def _serve(
    command: str, reference: str | None, where: Where, options: Options, config: ProcessConfig
) -> ExitCode:
    """Run the roles of *command* in this process."""
    link = None if options.supervised is None else Link.hold(options.supervised)
    settings, worker_config = where.settings(), options.worker_config()
    event_loop = EventLoopConfig.from_environment()
    app = None if reference is None else apps.load(reference, warn=not options.as_json and link is None)
    queues = () if app is None or command == "projector" else worker_config.queues
    plan = Plan(
        settings=settings,
        roles=_roles(command, app, settings, worker_config),
        banner=Banner(
            command=command,
            reference=reference,
            settings=settings,
            queues=queues,
            start=start_command(app, settings, queues) if app is not None and command == "dev" else None,
        ),
        contents=None if app is None or command == "projector" else contents_of(app),
        queues=queues,
        connect_timeout_s=config.connect_timeout_s,
        health_at=config.health_address,
        auto_migrate=command == "dev",
        releases_the_dead=command != "projector",
        as_json=options.as_json,
        link=link,
    )
    with _logging(options, name=None if link is None else link.name), _telemetry(command):
        run(work(plan), event_loop)
    leave_stuck_threads()
    return ExitCode.OK


def _roles(command: str, app: App | None, settings: ConnectionSettings, worker_config: WorkerConfig) -> Made:
    """Return what makes the roles of *command*; everything they are told is read now."""
    keeper_config, limits = KeeperConfig.from_environment(), Limits.from_environment()
    relay_config, projector_config = RelayConfig.from_environment(), ProjectorConfig.from_environment()
    state_store = StateStoreConfig.from_environment()

    def roles(store: Store, broker: Broker, health: Health) -> Sequence[Role]:
        # Stopped in the opposite order: the others go on while the worker finishes.
        made: list[Role] = [Watchdog()]
        if command in _PROJECTING:
            projects = Projector(
                store,
                broker,
                namespace=settings.namespace,
                config=projector_config,
                shards=_shards(settings.broker),
                sinks=[ProjectionSink(store, one) for one in app.projections.values()] if app else (),
            )
            health.require("projecting", projects.hears)
            made.append(projects)
        if command in _RELAYING:
            relays = Relay(store, broker, config=relay_config)
            health.require("relaying", relays.well)
            made.append(relays)
            if switch.active is not None:
                made.append(BacklogWatch(store.outbox))
        if command in _KEEPING:
            made.append(Keeper(store, broker, namespace=settings.namespace, config=keeper_config))
        if app is not None and command != "projector":
            works = Worker(
                app,
                watched(store),
                broker,
                namespace=settings.namespace,
                config=worker_config,
                state_store=state_store,
                limits=limits,
            )
            health.require("consuming", works.hears)
            made.append(works)
        return made

    return roles


def _shards(broker: str) -> int:
    """Return among how many queues events are divided: one where each costs a thread and a poll."""
    return SHARDS if broker.lower().startswith(("amqp:", "amqps:")) else 1


def _supervise(
    command: str, reference: str, where: Where, options: Options, config: ProcessConfig
) -> ExitCode:
    """Run several workers, and for ``up`` one of each other role, each in a process of its own."""
    settings, worker_config = where.settings(), options.worker_config()
    for url in (settings.store, settings.broker):
        if url.lower().startswith("memory:"):
            message = "memory:// belongs to one process, and several were asked for"
            raise Failure.invalid(message, "leave --processes out, or name another store and broker")
    place = ["--store", settings.store, "--broker", settings.broker, "--namespace", settings.namespace]
    looks = config.health is not None
    charges = [
        Charge(f"worker-{number}", ["worker", reference, *place, *options.flags()], looks=looks)
        for number in range(1, config.processes + 1)
    ]
    if command == "up":
        level = ["--log-level", options.level, *(["--json"] if options.as_json else [])]
        charges += [Charge(role, [role, *place, *level], looks=looks) for role in ("keeper", "relay")]
        charges.append(Charge("projector", ["projector", "--app", reference, *place, *level], looks=looks))
    banner = Banner(command=command, reference=reference, settings=settings, queues=worker_config.queues)
    with _logging(options, name=None):
        return supervise(
            charges,
            banner,
            health_at=config.health_address,
            grace_s=worker_config.grace_s,
            as_json=options.as_json,
        )


@contextlib.contextmanager
def _telemetry(command: str) -> Iterator[None]:
    """Tell what this process does while the block lasts, if its environment asks for it."""
    telling.turn_on(f"tidewheel-{command}", is_own_process=True)
    try:
        yield
    finally:
        switch.turn_off()


@contextlib.contextmanager
def _logging(options: Options, *, name: str | None) -> Iterator[None]:
    """Write log lines, as those of the process called *name*."""
    if not options.as_json:
        with logs.of_a_service(sys.stderr, level=options.level, as_json=False, process=name):
            yield
        return
    # Standard output belongs to the log; what the app itself prints goes to standard error.
    stream = sys.stdout
    with (
        contextlib.redirect_stdout(sys.stderr),
        logs.of_a_service(stream, level=options.level, as_json=True, process=name),
    ):
        yield
    output.close()
