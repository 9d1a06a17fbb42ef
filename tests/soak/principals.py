"""Two principals in parallel against the same capsule, ten thousand calls each.

Every call leaves a marker that nobody else has in key-value store, file and log, and answers with all that it
found there and in its environment: exactly what the same principal left in its call before.  What the daemon
keeps on disk for one is searched for the other's markers afterwards.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName, parse_env_key
from aos_runtime.store.commit import change_env
from aos_runtime.store.env import EnvChanges
from aos_runtime.store.layout import open_home
from aos_runtime.store.receipts import ApprovalSource
from tests.soak.registry import Budget, Report
from tests.support.agents import create_agents
from tests.support.projects import build_project
from tests.support.sockets import Client, running
from tests.support.tool_guests import install

WHOLE = 10_000
LEAST = 100
"""So many calls of each are made however short the time is."""
NAMES = (PrincipalName("bob"), PrincipalName("eve"))
WITNESS = CapsuleName("witness")


def marker(name: str, what: object) -> str:
    return f"only-for-{name}-{what}"


def prepare(home: Home, folder: Path) -> None:
    """Both principals, each with the capsule, a value and a secret of its own; no daemon is left."""
    open_home(home, create=True)
    with running(home):
        create_agents(home, NAMES, capsules=(WITNESS,))
    archive = build_project(WITNESS).read_bytes()
    for name in NAMES:
        install(home, folder, WITNESS, archive, source=ApprovalSource.EXPLICIT, principal=name)
        values = {parse_env_key("MARK"): marker(name, "env")}
        secrets = {parse_env_key("TOKEN"): marker(name, "secret")}
        change_env(home, name, WITNESS, EnvChanges(values=values, secrets=secrets))


def call_many(home: Home, name: PrincipalName, is_over: Callable[[int], bool]) -> tuple[int, list[str]]:
    """Call until it is over: how many calls were made, and each reply that was not exactly its own."""
    faults: list[str] = []
    number, left = 0, ""
    with Client(home) as client:
        client.authenticate(name)
        while not is_over(number) and len(faults) < 10:
            mark = marker(name, number)
            reply = client.tools("call", {"name": "witness", "arguments": {"marker": mark}})
            wanted = [mark, left, "last" if left else "", marker(name, "env"), marker(name, "secret"), left]
            content = reply["data"]["content"] if reply["status"] == "Success" else None
            if content != json.dumps(wanted, separators=(",", ":")):
                faults.append(f"call {number} of {name}: {reply} instead of {wanted}")
            number, left = number + 1, mark
    return number, faults


def strangers(home: Home) -> list[str]:
    """Files of one principal with a word of the other, and principals of whom no word was found."""
    faults = []
    for name, other in (NAMES, tuple(reversed(NAMES))):
        roots = (home.principal(name), home.secrets / name, home.log_folder(name), home.all_receipts(name))
        found = {path: _content(path) for root in roots for path in root.rglob("*") if path.is_file()}
        foreign = f"only-for-{other}".encode()
        faults += [f"{path} holds a word of {other}" for path, data in found.items() if foreign in data]
        own = [root for root in roots[:3] if any(path.is_relative_to(root) for path in _with(found, name))]
        if len(own) != 3:
            faults.append(f"files, secrets and logs of {name} do not all hold its markers: {own}")
    return faults


def _with(found: dict[Path, bytes], name: str) -> list[Path]:
    return [path for path, data in found.items() if f"only-for-{name}".encode() in data]


def _content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def drive(home: Home, is_over: Callable[[int], bool]) -> tuple[int, list[str]]:
    """Both at once, then a look at what is on disk."""
    with running(home), ThreadPoolExecutor(len(NAMES)) as pool:
        asked = [pool.submit(call_many, home, name, is_over) for name in NAMES]
        done = [one.result() for one in asked]
    calls = sum(number for number, _ in done)
    return calls, [*(fault for _, faults in done for fault in faults), *strangers(home)]


def run(budget: Budget) -> Report:
    """Ten thousand calls of each, or as many as the budget allows."""
    with tempfile.TemporaryDirectory(prefix="aos-principals-") as folder:
        home = Home(Path(folder) / "home")
        prepare(home, Path(folder))
        calls, faults = drive(home, lambda number: number >= WHOLE or (number >= LEAST and budget.is_spent()))
    return Report(rounds=calls, unit="calls of two principals", faults=tuple(faults))
