"""Every kind of capsule at once, for an hour: tools of the first-party capsules, of both lanes, of a run loop
and of programs; calls that trap, that are cancelled, and whose client goes away; new versions in between.

Each answer is checked.  In between everybody leaves: then no guest holds a handle, and of descriptors,
threads, children and memory the daemon has what it had.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.held import Held, at_rest, leaks, least, tell
from tests.soak.registry import Budget, Report
from tests.support.installation import ROOT, Aos
from tests.support.projects import build_project
from tests.support.python_capsule import archive_of, build_component
from tests.support.servers import Web, chunked, response
from tests.support.sockets import NIL, Client, Daemon, connected, running

WHOLE_S = 3600.0
WARM_SHARE, WARM_S = 0.4, 120.0
SLICE_S = 5.0
WORKERS = 6
TOOL_S = 60.0
PROJECTS = ("sampler", "culprit", "looper", "reacher")
SERVER = ROOT / "tests" / "support" / "mcp_server.py"
APPROVALS = '[[rule]]\ncapsule = "shell"\naction = "*"\nresource = "*"\ndecision = "allow"\n'
PAGE = "A page of this machine. " * 400


class Wrong(Exception):
    """An answer that is not what it must be."""


@dataclass(slots=True)
class Worker:
    """One client, with a workspace and a random order of its own."""

    aos: Aos
    web: Web
    workspace: Path
    random: random.Random
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.workspace.mkdir(parents=True)
        self.connect()

    def connect(self) -> None:
        self.client = Client(self.aos.home)
        self.client.sock.settimeout(TOOL_S)
        self.client.authenticate(workspace=str(self.workspace))

    def nap(self) -> None:
        """Let what was asked for begin, or not."""
        time.sleep(self.random.choice([0.0, 0.01, 0.1]))

    def reply(self, tool: str, corr: str | None = None, **arguments: object) -> Any:
        params = {"name": tool, "arguments": arguments, "timeout_s": TOOL_S}
        return self.client.tools("call", params, corr)

    def call(self, tool: str, **arguments: object) -> str:
        """The content of a good answer."""
        reply = self.reply(tool, **arguments)
        if reply["status"] != "Success" or reply["data"]["is_error"]:
            raise Wrong(f"{tool} {arguments}: {reply}")
        return str(reply["data"]["content"])

    def expect(self, wanted: object, tool: str, **arguments: object) -> None:
        content = self.call(tool, **arguments)
        if json.loads(content) != wanted:
            raise Wrong(f"{tool} {arguments}: {content!r} instead of {wanted!r}")


def greet(worker: Worker) -> None:
    name = uuid.uuid4().hex
    worker.expect(f"Hello, {name}!", "hello", name=name)


def keep_files(worker: Worker) -> None:
    name, text = f"{uuid.uuid4().hex}.txt", "line\n" * worker.random.randrange(1, 2000)
    worker.call("write_file", file_path=name, content=text)
    worker.expect(text, "read_file", file_path=name)
    worker.call("replace_in_file", file_path=name, old_string=text, new_string="changed")
    if (worker.workspace / name).read_text() != "changed":
        raise Wrong(f"{name} was not changed")
    worker.call("delete_file", file_path=name)


def fetch(worker: Worker) -> None:
    page = json.loads(worker.call("fetch_url", url=worker.web.url("/page")))
    if (page["status"], page["text"]) != (200, PAGE):
        raise Wrong(f"fetch_url: {page}")
    worker.expect("200 15", "stream", url=worker.web.url("/parts"))


def tally(worker: Worker) -> None:
    answer = json.loads(worker.call("tally", by=1))
    if answer["random"] != 16 or answer["elsewhere"] != "ErrorCode_CapabilityDenied":
        raise Wrong(f"tally: {answer}")


def ask_program(worker: Worker) -> None:
    """A tool of an MCP server."""
    text = uuid.uuid4().hex
    if (content := worker.call("echo", text=text)) != text:
        raise Wrong(f"echo: {content!r} instead of {text!r}")


def run_command(worker: Worker) -> None:
    text = uuid.uuid4().hex
    command = f"printf {text} > {text}; cat {text}; rm {text}"
    worker.expect(text, "run_shell_command", command=command)


def run_beside(worker: Worker) -> None:
    """A command that goes on until it is ended."""
    told = worker.call("spawn_background_process", command="echo begun; sleep 600")
    process = int(re.findall(r"id: (\d+)", told)[0])
    until = time.monotonic() + TOOL_S
    while "begun" not in (said := json.loads(worker.call("read_process_logs", id=process)))["stdout"]:
        if not said["running"] or time.monotonic() > until:
            raise Wrong(f"read_process_logs: {said}")
    ended = json.loads(worker.call("kill_process", id=process))
    if ended["ended"] != "signal 9":
        raise Wrong(f"kill_process: {ended}")


def inspect(worker: Worker) -> None:
    names = [row["name"] for row in json.loads(worker.call("list_capsules"))]
    if "shell" not in names or "looper" not in names:
        raise Wrong(f"list_capsules: {names}")


def ask_loop(worker: Worker) -> None:
    content = worker.call("loop_state")
    if not content.startswith("echoed "):
        raise Wrong(f"loop_state: {content}")


def move_bytes(worker: Worker) -> None:
    size = worker.random.randrange(1, 500_000)
    worker.expect("x" * size, "repeat", bytes=size)


def trap(worker: Worker) -> None:
    reply = worker.reply("explode", text="now")
    if not reply["data"]["is_error"] or "it panicked" not in reply["data"]["content"]:
        raise Wrong(f"explode: {reply}")


def ask_for_the_endless(worker: Worker) -> str:
    """Send a call that would go on for ever, without waiting; its correlation id."""
    corr = uuid.uuid4().hex
    endless = (("spin", {}), ("doze", {"ms": 60_000}), ("run_shell_command", {"command": "sleep 600"}))
    tool, arguments = worker.random.choice(endless)
    params = {"name": tool, "arguments": arguments, "timeout_s": TOOL_S}
    payload = {"type": "raw_json", "params": params}
    topic = f"astrid.v1.request.tools.call.{corr}"
    worker.client.send({"topic": topic, "payload": payload, "source_id": NIL})
    return corr


def cancel(worker: Worker) -> None:
    corr = ask_for_the_endless(worker)
    worker.nap()
    frames = worker.client.ask(f"request.tools.cancel.{uuid.uuid4().hex}", {"params": {"corr": corr}})
    if frames[-1]["payload"]["data"] != {"cancelled": True} and not is_out_of_fuel(frames[0]):
        raise Wrong(f"cancel: {frames}")


def is_out_of_fuel(frame: Any) -> bool:
    """Whether the call had ended by itself: fuel is shared, so it may be short for one that spins."""
    return "exhausted its fuel budget" in str(frame["payload"]["data"])


def hang_up(worker: Worker) -> None:
    """Go away in the middle of a call."""
    ask_for_the_endless(worker)
    worker.nap()
    worker.client.close()
    worker.connect()


DEEDS: dict[str, tuple[Callable[[Worker], None], int]] = {
    "greet": (greet, 10),
    "files": (keep_files, 5),
    "http": (fetch, 3),
    "python": (tally, 3),
    "mcp": (ask_program, 3),
    "command": (run_command, 2),
    "background": (run_beside, 1),
    "system": (inspect, 1),
    "run loop": (ask_loop, 3),
    "bytes": (move_bytes, 3),
    "trap": (trap, 1),
    "cancel": (cancel, 1),
    "hang up": (hang_up, 1),
}
"""What a worker does, and how often beside the others."""


def work(worker: Worker, until: float, done: Counter[str], faults: list[str]) -> None:
    names = list(DEEDS)
    weights = [weight for _, weight in DEEDS.values()]
    try:
        while time.monotonic() < until and not faults:
            [name] = worker.random.choices(names, weights)
            DEEDS[name][0](worker)
            done[name] += 1
    except (Wrong, EOFError, OSError, KeyError) as error:
        faults.append(f"{type(error).__name__}: {error}")
    finally:
        worker.client.close()


def prepare(aos: Aos, web: Web) -> dict[str, Path]:
    """The first-party capsules and those of the tests, installed; the archives of the latter."""
    aos.run("init", "-y")
    archives = {name: build_project(name) for name in PROJECTS}
    archives["python"] = aos.root / "python.capsule"
    archives["python"].write_bytes(archive_of(build_component(aos.root / "python")))
    archives["served"] = build_served(aos, aos.root / "served")
    for archive in archives.values():
        aos.run("capsule", "install", str(archive), "--approve-untrusted")
    address = f"127.0.0.1:{web.port}"
    rows = "".join(f'{name} = ["{address}"]\n' for name in ("http", "reacher"))
    egress = f"[security.capsule_local_egress]\n{rows}"
    aos.home.config_file.write_text(f"[timeouts]\nmcp_start_secs = 60\n{egress}", encoding="utf-8")
    aos.home.approvals_file.write_text(APPROVALS, encoding="utf-8")
    aos.run("stop")
    return archives


def build_served(aos: Aos, folder: Path) -> Path:
    """The `.capsule` of an MCP server."""
    folder.mkdir()
    shutil.copy(SERVER, folder / SERVER.name)
    servers = {"served": {"command": sys.executable, "args": [SERVER.name]}}
    (folder / "mcp.json").write_text(json.dumps({"name": "served", "mcpServers": servers}))
    return Path(aos.run("capsule", "build", str(folder), "--format", "json").json["path"])


class Mixed:
    """The run: slices of work, each followed by a look at what is left of it."""

    def __init__(self, aos: Aos, web: Web, daemon: Daemon, archives: dict[str, Path]) -> None:
        self._aos = aos
        self._web = web
        self._daemon = daemon
        self._archives = archives
        self._random = random.Random(0)
        self._slices = 0
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self.held: list[Held] = []

    def one_slice(self, *, is_warm: bool) -> None:
        """Everybody comes, works while a capsule is replaced, and leaves."""
        self._slices += 1
        folder = self._aos.root / "work" / str(self._slices)
        workers = [
            Worker(self._aos, self._web, folder / str(number), random.Random(self._random.random()))
            for number in range(WORKERS)
        ]
        until = time.monotonic() + SLICE_S
        with ThreadPoolExecutor(WORKERS) as pool:
            ends = [pool.submit(work, worker, until, self.done, self.faults) for worker in workers]
            name = self._random.choice(sorted(self._archives))
            self._aos.run("capsule", "install", str(self._archives[name]), "--approve-untrusted")
            self.done["replaced"] += 1
            for end in ends:
                end.result()
        shutil.rmtree(folder)
        self._web.requests.clear()
        self._look(is_warm)

    def _look(self, is_warm: bool) -> None:
        with connected(self._aos.home) as client:
            rows = client.ask(f"request.events.top.{uuid.uuid4().hex}", {"params": {}})[-1]["payload"]
        left = {row["capsule"]: row["handles"] for row in rows["data"]["capsules"] if row["handles"]}
        left.pop("looper", None)  # its run loop holds its subscriptions for as long as it runs
        if left:
            self.faults.append(f"handles are left: {left}")
        held = at_rest(self._aos.home, self._daemon)
        if is_warm:
            self.held.append(held)


def run(budget: Budget) -> Report:
    """An hour, or as long as the budget allows, and one slice at least once it is warm.  Making the capsules
    ready is not counted.
    """
    whole_s = WHOLE_S if budget.for_s is None else budget.for_s
    answers = {
        "/page": response(PAGE.encode(), "200 OK", "Content-Type: text/plain"),
        "/parts": chunked(b"first", b"second", b"last"),
    }
    with tempfile.TemporaryDirectory(prefix="aos-mixed-") as folder, Web(answers) as web:
        aos = Aos(root=Path(folder), extra={"AOS_VAR_API_KEY": "k-soak"})
        archives = prepare(aos, web)
        with running(aos.home) as daemon:
            mixed = Mixed(aos, web, daemon, archives)
            started = time.monotonic()
            warm_s = min(WARM_S, whole_s * WARM_SHARE)
            while not mixed.faults and (not mixed.held or time.monotonic() - started < whole_s - SLICE_S):
                mixed.one_slice(is_warm=time.monotonic() - started >= warm_s)
            return told(mixed)


def told(mixed: Mixed) -> Report:
    print(", ".join(f"{count} {name}" for name, count in sorted(mixed.done.items())))
    if mixed.held:
        tell(mixed.held)
        third = max(1, len(mixed.held) // 3)
        mixed.faults += leaks(least(mixed.held[:third]), least(mixed.held[-third:]))
    kinds = len(mixed.done)
    return Report(rounds=sum(mixed.done.values()), unit=f"deeds of {kinds} kinds", faults=tuple(mixed.faults))
