"""A real daemon in its default configuration at full load, from several principals at once.

Each reply is checked.  In between everybody leaves and comes again; what the daemon holds while nobody is
there must not grow once it has warmed up: memory by less than 5 %, descriptors and threads not beyond the few
that come and go.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.layout import open_home
from aos_runtime.wire.client import tools_exchange
from aos_runtime.wire.frames import encode_frame
from bench.clients import Load, WrongReply, run_load
from tests.soak.held import Held, at_rest, leaks, tell
from tests.soak.registry import Budget, Report
from tests.support.agents import create_agents
from tests.support.sockets import Client, Daemon, running

WHOLE_S = 600.0
PRINCIPALS = (DEFAULT_PRINCIPAL, "bob", "eve", "mallory")
CLIENTS_OF_EACH = 4
SLICE_S = 2.0
WARM_SHARE, WARM_S = 0.4, 60.0
"""The part of the time, and at most so much of it, after which nothing may grow any more."""
MARK = "m" * 31


class Greetings:
    """Calls of the greeter, each with a name of its own, and the check of what comes back."""

    def __init__(self) -> None:
        exchange = tools_exchange("call", {"name": "hello", "arguments": {"name": MARK}}, MARK)
        self._frame = encode_frame(exchange.request)
        self._topic = exchange.topic

    def make(self, number: int) -> bytes:
        return self._frame.replace(MARK.encode(), f"{number:031d}".encode())

    def check(self, number: int, body: bytes) -> bool:
        reply = json.loads(body)
        mark = f"{number:031d}"
        if reply.get("topic") != self._topic.replace(MARK, mark):
            raise WrongReply(f"a frame on {reply.get('topic')!r} came for call {number}")
        payload = reply["payload"]
        if payload["status"] == "Working":
            return False
        if payload["status"] != "Success" or payload["data"]["content"] != f'"Hello, {mark}!"':
            raise WrongReply(f"call {number} was answered {payload!r}")
        return True


def one_slice(home: Home, greetings: Greetings, for_s: float) -> Load:
    """Everybody comes, calls for a while, and leaves."""
    clients = [Client(home) for name in PRINCIPALS for _ in range(CLIENTS_OF_EACH)]
    try:
        for client, name in zip(clients, PRINCIPALS * CLIENTS_OF_EACH, strict=True):
            client.authenticate(name)
        return run_load(
            [client.sock for client in clients], greetings.make, greetings.check, warm_s=0.0, for_s=for_s
        )
    finally:
        for client in clients:
            client.close()


def drive(home: Home, daemon: Daemon, is_over: Callable[[], bool], is_warm: Callable[[], bool]) -> Report:
    greetings, loads, faults = Greetings(), [one_slice(home, Greetings(), SLICE_S)], []
    held: list[Held] = []
    """Once it is warm, after each slice."""
    try:
        while not is_over():
            loads.append(one_slice(home, greetings, SLICE_S))
            if is_warm():
                held.append(at_rest(home, daemon))
    except (WrongReply, EOFError, OSError) as error:
        faults.append(f"{type(error).__name__}: {error}")
    if daemon.process.poll() is not None:
        return Report(rounds=len(loads), unit="slices", faults=(*faults, "the daemon ended"))
    if held:
        faults += leaks(held[0], held[-1])
        tell(held)
    else:
        faults.append("the time was too short to warm up")
    latencies_s = sorted(chain.from_iterable(load.latencies_s for load in loads))
    calls = len(latencies_s)
    print(
        f"{calls} calls, {calls / sum(load.elapsed_s for load in loads):.0f} calls/s, "
        f"p50 {latencies_s[calls // 2] * 1e3:.2f} ms, p99 {latencies_s[calls * 99 // 100] * 1e3:.2f} ms"
    )
    return Report(rounds=calls, unit=f"calls of {len(PRINCIPALS)} principals", faults=tuple(faults))


def run(budget: Budget) -> Report:
    """Ten minutes, or as long as the budget allows."""
    whole_s = WHOLE_S if budget.for_s is None else budget.for_s
    warm_s = min(WARM_S, whole_s * WARM_SHARE)
    end = budget.started_s + whole_s - SLICE_S
    with tempfile.TemporaryDirectory(prefix="aos-load-") as folder:
        home = Home(Path(folder) / "home")
        open_home(home, create=True)
        with running(home) as daemon:
            create_agents(home, PRINCIPALS[1:])
            return drive(home, daemon, lambda: time.monotonic() >= end, lambda: budget.elapsed_s >= warm_s)
