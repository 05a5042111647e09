"""What ``rabbitmqctl`` does to a private node, in milliseconds: over the socket of ``control.erl``.

The expressions use functions of RabbitMQ that ``rabbitmqctl`` itself calls, so they follow its version, not
a public contract: 3.10 is what they were tried with.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from pathlib import Path
from typing import Any

from tests.servers.places import ServerTrouble

#: The account that private nodes have, which may do everything.
USER = "tidewheel"

_ANSWER_S_MAX = 60.0
_LEADER_S_MAX = 15.0

#: A quorum queue reports its counts only every few seconds: they are asked of its state machine instead.
_COUNTS = """
    Counts = fun(Q) -> case amqqueue:get_type(Q) of
        rabbit_quorum_queue ->
            {ok, {_, View}, _} = ra:local_query(amqqueue:get_pid(Q), fun rabbit_fifo:overview/1),
            {maps:get(num_ready_messages, View, 0), maps:get(num_checked_out, View, 0),
             maps:get(num_consumers, View, 0)};
        _ ->
            [{_, Ready}, {_, Unacknowledged}, {_, Consumers}] =
                rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged, consumers]),
            {Ready, Unacknowledged, Consumers}
    end end,
"""


class Control:
    """Steers the node whose socket is *control*."""

    def __init__(self, control: Path) -> None:
        self.control = control

    def evaluate(self, expression: str) -> Any:
        """Evaluate Erlang (expressions, then a full stop) and return the value, which has to fit JSON."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_ANSWER_S_MAX)
            line.connect(str(self.control))
            asked = expression.encode()
            line.sendall(struct.pack(">I", len(asked)) + asked)
            (size,) = struct.unpack(">I", _exactly(line, 4))
            answer = json.loads(_exactly(line, size))
        if "ok" not in answer:
            raise ServerTrouble(f"the node could not evaluate {expression!r}: {answer['error']}")
        return answer["ok"]

    def add_vhost(self, name: str) -> None:
        """Create a virtual host in which the node's user may do everything."""
        vhost, user = binary(name), binary(USER)
        self.evaluate(
            f"ok = rabbit_vhost:add({vhost}, {user}), ok = rabbit_auth_backend_internal:set_permissions("
            f'{user}, {vhost}, <<".*">>, <<".*">>, <<".*">>, {user}).'
        )

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all that is in it."""
        self.evaluate(f"ok = rabbit_vhost:delete({binary(name)}, {binary(USER)}).")

    def close_all_connections(self, reason: str = "closed by a test") -> int:
        """Have the broker close every connection, and return how many there were."""
        closed = self.evaluate(
            f"length([rabbit_networking:close_connection(C, {binary(reason)})"
            " || C <- rabbit_networking:connections()])."
        )
        assert isinstance(closed, int)
        return closed

    def raise_memory_alarm(self) -> None:
        """Have the broker think that it has no memory left: it blocks those who publish."""
        self.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.000001).")
        self._wait_for_alarm(on=True)

    def clear_memory_alarm(self) -> None:
        """Let the broker have its memory again."""
        self.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.4).")
        self._wait_for_alarm(on=False)

    def settle(self) -> None:
        """Have the node write down which queues it has.

        RabbitMQ 3.10 forgets a quorum queue, with its confirmed messages, that was declared in the two
        seconds or so before a SIGKILL: the queue is there again, but has no leader, for ever. A test that
        declares and kills settles in between, unless that is what it is about.
        """
        self.evaluate("lists:foreach(fun dets:sync/1, dets:all()).")

    def list_queues(self, vhost: str) -> list[dict[str, Any]]:
        """Return each queue's ``name``, ``type``, ``ready``, ``unacknowledged`` and ``consumers``."""
        deadline = time.monotonic() + _LEADER_S_MAX
        while True:
            try:
                rows = self.evaluate(
                    f"{_COUNTS} [begin {{resource, _, queue, Name}} = amqqueue:get_name(Q),"
                    " {R, U, C} = Counts(Q), #{name => Name, type => atom_to_binary(amqqueue:get_type(Q)),"
                    " ready => R, unacknowledged => U, consumers => C} end"
                    f" || Q <- rabbit_amqqueue:list({binary(vhost)})]."
                )
                assert isinstance(rows, list)
                return rows
            except ServerTrouble:
                # A quorum queue of a node that has just started cannot be asked before it has a leader.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def list_consumers(self, vhost: str) -> list[dict[str, Any]]:
        """Return each consumer's ``queue``, ``tag``, ``prefetch`` and whether it is ``active``."""
        rows = self.evaluate(
            "[begin {resource, _, queue, Name} = proplists:get_value(queue_name, C), #{queue => Name,"
            " tag => proplists:get_value(consumer_tag, C), active => proplists:get_value(active, C),"
            " prefetch => proplists:get_value(prefetch_count, C)} end"
            f" || C <- rabbit_amqqueue:consumers_all({binary(vhost)})]."
        )
        assert isinstance(rows, list)
        return rows

    def _wait_for_alarm(self, *, on: bool) -> None:
        deadline = time.monotonic() + _ANSWER_S_MAX
        while self.evaluate("rabbit_alarm:get_alarms() =/= [].") is not on:
            if time.monotonic() > deadline:
                raise ServerTrouble(f"the memory alarm was not {'raised' if on else 'cleared'} in time")
            time.sleep(0.02)


def binary(text: str) -> str:
    """Return *text* as Erlang writes a binary."""
    return "<<" + ",".join(str(byte) for byte in text.encode()) + ">>"


def quoted(text: str) -> str:
    """Return *text* as Erlang writes a string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _exactly(line: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        piece = line.recv(size - len(got))
        if not piece:
            raise ServerTrouble("the node hung up before it answered")
        got += piece
    return got
