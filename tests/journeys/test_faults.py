"""What a hostile guest, a hostile client and a bad machine do to a real daemon, one fault by name.

In every one the daemon goes on, and so does every other capsule: a neighbour calls the greeter all the time,
and each of its calls is answered, during the fault and after it.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.audit_reader import read_audit
from aos_runtime.store.audit_verify import verify
from aos_runtime.store.keys import load_runtime_seed, public_hex
from aos_runtime.store.layout import open_home
from aos_runtime.store.receipts import ApprovalSource
from tests.support.installation import Aos, wait_until
from tests.support.shims import build_shim
from tests.support.small_disk import SmallDisk
from tests.support.sockets import NIL, Client, Daemon, connected, running
from tests.support.tool_guests import install

pytestmark = pytest.mark.journey

MIB = 1 << 20
CONNECTIONS = 200
SHORT_S = 2.0
"""The deadline of a call that would never end."""
LONG_S = 60.0
DAY_S = 86_400


class Neighbour:
    """Somebody else's calls, one after the other, for as long as the block lasts."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._wrong: list[object] = []
        self._answered = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._go_on)

    def __enter__(self) -> Neighbour:
        self._thread.start()
        self.is_answered()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.is_answered()
        finally:
            self._ends.set()
            self._thread.join(LONG_S)
        assert not self._wrong, self._wrong
        assert not self._thread.is_alive()

    def is_answered(self) -> None:
        """Wait for the answers of two more calls: the second was made after now."""
        wanted = self._answered + 2
        wait_until(
            lambda: bool(self._wrong) or self._answered >= wanted, "the neighbour's calls are answered"
        )
        assert not self._wrong, self._wrong

    def _go_on(self) -> None:
        try:
            with connected(self._home) as client:
                while not self._ends.is_set():
                    name = uuid.uuid4().hex
                    reply = client.tools("call", {"name": "hello", "arguments": {"name": name}})
                    if reply["status"] != "Success" or reply["data"]["content"] != f'"Hello, {name}!"':
                        self._wrong.append(reply)
                        return
                    self._answered += 1
        except (OSError, EOFError) as error:
            self._wrong.append(error)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, culprit_capsule: Path) -> Home:
    folder = tmp_path_factory.mktemp("faults")
    made = Home(folder / "home")
    open_home(made, create=True)
    install(made, folder, "culprit", culprit_capsule.read_bytes(), source=ApprovalSource.EXPLICIT)
    return made


@pytest.fixture(scope="module")
def daemon(home: Home) -> Iterator[Daemon]:
    with running(home) as made:
        yield made


def call(home: Home, tool: str, timeout_s: float = LONG_S, **arguments: object) -> tuple[bool, str]:
    """Whether it failed, and what was said."""
    with connected(home) as client:
        client.sock.settimeout(LONG_S)
        reply = client.tools("call", {"name": tool, "arguments": arguments, "timeout_s": timeout_s})
    if reply["status"] == "Error":
        return True, reply["data"]
    assert reply["status"] == "Success", reply
    return reply["data"]["is_error"], reply["data"]["content"]


def is_well(home: Home) -> None:
    """The capsule that did it serves its next call."""
    assert call(home, "doze", ms=1) == (False, '"awake"')


def is_closed(client: Client) -> None:
    """The daemon ends this connection, whatever it sent before."""
    client.sock.settimeout(LONG_S)
    with contextlib.suppress(EOFError):
        while True:
            client.read()


@contextlib.contextmanager
def nothing_is_left(daemon: Daemon) -> Iterator[None]:
    """Afterwards the daemon has no more sockets open than before."""
    before = sockets(daemon)
    yield
    wait_until(lambda: sockets(daemon) <= before, f"the daemon has {before} sockets again")


def sockets(daemon: Daemon) -> int:
    found = 0
    for path in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(path.readlink()).startswith("socket:")
    return found


@contextlib.contextmanager
def said(home: Home) -> Iterator[list[str]]:
    """The lines that the daemon's log got in the block, there after it."""
    size = home.daemon_log.stat().st_size
    lines: list[str] = []
    yield lines
    lines += home.daemon_log.read_bytes()[size:].decode().splitlines()


# a guest


def test_fault_a_guest_traps(home: Home, daemon: Daemon) -> None:
    with Neighbour(home):
        for _ in range(20):
            failed, text = call(home, "trap")
            assert (failed, "it panicked or aborted" in text) == (True, True), text
        is_well(home)


def test_fault_a_guest_spins(home: Home, daemon: Daemon) -> None:
    with Neighbour(home) as neighbour, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, home, "spin", SHORT_S)
        neighbour.is_answered()
        failed, text = asked.result(LONG_S)
        assert failed and ("fuel" in text or "within 2 s" in text), text
        is_well(home)


def test_fault_a_guest_allocates_without_end(home: Home, daemon: Daemon) -> None:
    before = resident_bytes(daemon)
    with Neighbour(home):
        failed, text = call(home, "allocate")
        assert failed, text
        is_well(home)
    assert resident_bytes(daemon) - before < 256 * MIB


def test_fault_a_guest_floods_its_topic(home: Home, daemon: Daemon) -> None:
    before = resident_bytes(daemon)
    with Neighbour(home) as neighbour, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, home, "flood", SHORT_S)
        neighbour.is_answered()
        failed, text = asked.result(LONG_S)
        assert failed and ("fuel" in text or "within 2 s" in text), text
        wait_until(
            lambda: call(home, "doze", ms=1) == (False, '"awake"'), "it is well once its queue is empty"
        )
    assert resident_bytes(daemon) - before < 256 * MIB


def test_fault_a_guest_publishes_1_mib_and_a_byte(home: Home, daemon: Daemon) -> None:
    with Neighbour(home):
        assert call(home, "publish", bytes=MIB) == (False, '"published"')
        failed, text = call(home, "publish", bytes=MIB + 1)
        assert (failed, "InvalidInput" in text) == (False, True), text
        is_well(home)


# a client


def test_fault_a_client_sends_half_frames(home: Home, daemon: Daemon) -> None:
    """The daemon itself closes each, after its deadline, while the clients hold on."""
    halves = [b"\x00", b"\x00\x00\x01", b"\x00\x00\x01\x00{", b"\x00\x00\x01\x00" + b"x" * 200]
    with nothing_is_left(daemon), said(home) as lines:
        strangers, known = [Client(home) for _ in halves], [Client(home) for _ in halves]
        with Neighbour(home) as neighbour:
            for client in known:
                client.authenticate()
            for client, half in zip((*strangers, *known), halves * 2, strict=True):
                client.sock.sendall(half)
            neighbour.is_answered()
            for client in (*strangers, *known):
                is_closed(client)
            neighbour.is_answered()
    for client in (*strangers, *known):
        client.close()
    for reason in ("handshake timed out", "client did not finish a frame within 10 s"):
        assert sum(f"connection closed: {reason}" in line for line in lines) == len(halves), lines


@pytest.mark.parametrize("is_known", [False, True], ids=["before the handshake", "after it"])
def test_fault_a_client_sends_garbage(home: Home, daemon: Daemon, is_known: bool) -> None:
    noise = random.Random(4)
    with nothing_is_left(daemon), Neighbour(home) as neighbour:
        for number in range(40):
            with Client(home) as client:
                if is_known:
                    client.authenticate()
                body = noise.randbytes(noise.randrange(1, 4000))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    if number % 2:
                        client.send_bytes(body)
                    else:
                        client.sock.sendall(b"\xff" + body)
                is_closed(client)
        neighbour.is_answered()


@pytest.mark.parametrize("is_known", [False, True], ids=["before the handshake", "after it"])
def test_fault_a_client_announces_4_gib(home: Home, daemon: Daemon, is_known: bool) -> None:
    before = resident_bytes(daemon)
    with nothing_is_left(daemon), Neighbour(home), Client(home) as client:
        if is_known:
            client.authenticate()
        client.sock.sendall(b"\xff\xff\xff\xff")
        is_closed(client)
    assert resident_bytes(daemon) - before < 64 * MIB


@pytest.mark.parametrize("speaks", [False, True], ids=["silent ones", "ones that shake hands"])
def test_fault_a_client_opens_200_connections(home: Home, daemon: Daemon, speaks: bool) -> None:
    crowd: list[Client] = []
    refused, before = 0, sockets(daemon)
    try:
        with Neighbour(home) as neighbour:
            for _ in range(CONNECTIONS):
                crowd.append(Client(home))
                if speaks:
                    refused += not is_greeted(crowd[-1])
            assert not speaks or 0 < refused < CONNECTIONS
            neighbour.is_answered()
            if not speaks:
                wait_until(lambda: has_room(home), "a new client is served while the crowd is silent")
    finally:
        for client in crowd:
            client.close()
    wait_until(lambda: has_room(home), "a new client is served once the crowd is gone")
    wait_until(lambda: sockets(daemon) <= before, "nothing of the crowd is left")


def is_greeted(client: Client) -> bool:
    try:
        return bool(client.hello()["status"] == "ok")
    except (EOFError, BrokenPipeError):
        return False


def has_room(home: Home) -> bool:
    try:
        with connected(home) as client:
            return bool(client.request("ListCapsules")["status"] == "Success")
    except (EOFError, BrokenPipeError):
        return False


def test_fault_a_client_never_reads(home: Home, daemon: Daemon) -> None:
    """It is evicted, and not later than a client may take nothing, however much it goes on to ask."""
    before = resident_bytes(daemon)
    with (
        nothing_is_left(daemon),
        said(home) as lines,
        Neighbour(home) as neighbour,
        connected(home) as client,
    ):
        gone = select.poll()
        gone.register(client.sock, 0)  # tells of a hang-up and of nothing else
        client.sock.settimeout(0.2)
        deadline = time.monotonic() + LONG_S
        while not gone.poll(0):
            assert time.monotonic() < deadline, "the daemon still holds a client that takes nothing"
            with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
                client.send(large_request())
        neighbour.is_answered()
        is_closed(client)
    evicted = [line for line in lines if "client lagged" in line or "client took nothing" in line]
    assert len(evicted) == 1, lines
    assert resident_bytes(daemon) - before < 256 * MIB


def test_fault_a_client_asks_once_and_takes_nothing(home: Home, daemon: Daemon) -> None:
    """Its queue never overflows: what ends it is the time that it took nothing."""
    with (
        nothing_is_left(daemon),
        said(home) as lines,
        Neighbour(home) as neighbour,
        connected(home) as client,
    ):
        gone = select.poll()
        gone.register(client.sock, 0)
        for _ in range(3):
            client.send(large_request())
        wait_until(lambda: bool(gone.poll(0)), "it is evicted", timeout_s=LONG_S)
        neighbour.is_answered()
    assert sum("connection closed: client took nothing for 5 s" in line for line in lines) == 1, lines


def large_request() -> dict[str, Any]:
    """A call with an answer of half a MiB."""
    params = {"name": "hello", "arguments": {"name": "x" * (MIB // 2)}}
    topic = f"astrid.v1.request.tools.call.{uuid.uuid4().hex}"
    return {"topic": topic, "payload": {"type": "raw_json", "params": params}, "source_id": NIL}


# the machine


def test_fault_the_daemon_is_killed_in_a_tool_call(aos: Aos, culprit_capsule: Path) -> None:
    aos.run("start")
    aos.run("capsule", "install", str(culprit_capsule), "--approve-untrusted")
    calling = aos.start("tool", "call", "doze", "--arg", "ms=60000")
    try:
        wait_until(lambda: "doze" in aos.run("tool", "calls").out, "the call runs")
        aos.kill_daemon()
        out, err = calling.communicate(timeout=LONG_S)
    finally:
        calling.kill()
        calling.wait()
    assert (calling.returncode, out) == (1, "")
    assert err.startswith("error: ") and "hint: " in err and "Traceback" not in err, err
    assert aos.run("tool", "call", "hello", "--arg", "name=Ada").out == "Hello, Ada!\n"
    assert aos.run("tool", "call", "doze", "--arg", "ms=1").out == "awake\n"
    assert aos.run("audit", "verify", "--json").json["intact"] is True


def test_fault_files_can_grow_no_more(home: Home, daemon: Daemon) -> None:
    """A quota of the system on the size of files: EFBIG."""
    assert call(home, "keep", text="before") == (False, '"kept"')
    with Neighbour(home) as neighbour:
        daemon.limit_files(4096)
        try:
            failed, text = call(home, "keep", text="x" * 100_000)
            assert failed, text
            neighbour.is_answered()
            assert call(home, "kept") == (False, '"before"')
        finally:
            daemon.limit_files(-1)
        assert call(home, "keep", text="after") == (False, '"kept"')
        assert call(home, "kept") == (False, '"after"')


def test_fault_the_disk_is_full(tmp_path: Path, culprit_capsule: Path) -> None:
    """ENOSPC for every file of the home: what must be on record first is refused and not done, all else goes
    on, and with space everything is as before.
    """
    prepared = Home(tmp_path / "home")
    open_home(prepared, create=True)
    install(prepared, tmp_path, "culprit", culprit_capsule.read_bytes(), source=ApprovalSource.EXPLICIT)
    after = Home(tmp_path / "after")
    with SmallDisk(prepared, after, 32 * MIB) as small:
        home = small.home
        assert call(home, "keep", text="before") == (False, '"kept"')
        with Neighbour(home) as neighbour, connected(home) as client:
            small.fill()
            failed, text = call(home, "keep", text="x" * 100_000)
            assert failed, text
            refused = refused_name(client)
            assert not home.profile(refused).exists(), "nothing was done"
            trouble = client.request("GetStatus")["data"]["trouble"]
            assert "audit" in trouble and "cannot be written" in trouble, trouble
            neighbour.is_answered()
            assert call(home, "kept") == (False, '"before"')
            is_well(home)
            small.free()
            wait_until(lambda: create_principal(client, "late")["status"] == "Success", "it is done again")
            wait_until(lambda: client.request("GetStatus")["data"]["trouble"] is None, "no trouble is left")
            assert call(home, "keep", text="after") == (False, '"kept"')
            assert call(home, "kept") == (False, '"after"')
        assert "the audit trail can be written again" in home.daemon_log.read_text()
        assert small.stop() == 0
    key = bytes.fromhex(public_hex(load_runtime_seed(after, create=False)))
    with read_audit(after.audit_db) as reader:
        assert reader is not None
        assert verify(reader, key).findings == []
        asked = [one.entry.action.get("method") for one in reader.records()]
    assert asked.count("AgentCreate") >= 1


def create_principal(client: Client, name: str) -> Any:
    """An effect that must be on record first; the payload of its answer."""
    fields = {"method": "AgentCreate", "request_id": "r", "params": {"name": name}}
    return client.ask("admin.agent.create", fields)[-1]["payload"]


def refused_name(client: Client) -> PrincipalName:
    """Create principals until one is refused: a few may find room in what the trail has allocated already."""
    for number in range(50):
        name = f"early-{number}"
        payload = create_principal(client, name)
        if payload["status"] == "Error":
            reason = "nothing was done, because it could not be put on record first"
            assert payload["data"].startswith(reason), payload
            return PrincipalName(name)
    raise AssertionError("the trail never filled")


@pytest.fixture
def stepped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that steps the wall clock of a daemon that is started from now on."""
    shim, step = build_shim("clockstep", tmp_path), tmp_path / "step"
    step.write_bytes(bytes(8))
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    monkeypatch.setenv("AOS_CLOCKSTEP", str(step))
    return step


def put_step(file: Path, seconds: int) -> None:
    with file.open("r+b") as opened:
        opened.write(seconds.to_bytes(8, "little", signed=True))


def test_fault_the_clock_jumps(tmp_path: Path, culprit_capsule: Path, stepped: Path) -> None:
    home = Home(tmp_path / "home")
    open_home(home, create=True)
    install(home, tmp_path, "culprit", culprit_capsule.read_bytes(), source=ApprovalSource.EXPLICIT)
    with running(home), Neighbour(home) as neighbour, ThreadPoolExecutor(1) as pool:
        for days in (400, -400):
            asked = pool.submit(call, home, "doze", ms=1500)
            neighbour.is_answered()
            put_step(stepped, days * DAY_S)
            neighbour.is_answered()
            failed, text = call(home, "doze", SHORT_S, ms=60_000)
            assert failed, text
            assert asked.result(LONG_S) == (False, '"awake"')
        is_well(home)
    stamps = {line[:4] for line in home.daemon_log.read_text().splitlines() if line[:4].isdigit()}
    assert len(stamps) == 2, stamps


def resident_bytes(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.process.pid}/statm").read_text(encoding="ascii")
    return int(status.split()[1]) * os.sysconf("SC_PAGE_SIZE")
