"""A client of a real daemon in a few lines: frames and handshake written out, so that a test sees the bytes.

Every read has a deadline.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL
from tests.support.installation import ROOT

NIL = "00000000-0000-0000-0000-000000000000"
WAIT_S = 15.0
IMPORTS: tuple[str, ...] = ()
"""Folders that a daemon imports from before anything else."""


class Client:
    """One connection.  EOFError where the daemon closed it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S)
        try:
            self.sock.connect(str(home.socket))
        except OSError:
            self.sock.close()
            raise

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send_bytes(self, body: bytes) -> None:
        self.sock.sendall(len(body).to_bytes(4, "big") + body)

    def send(self, value: object) -> None:
        self.send_bytes(json.dumps(value).encode())

    def read(self) -> Any:
        size = int.from_bytes(self._read_exactly(4), "big")
        return json.loads(self._read_exactly(size))

    def _read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                chunk = self.sock.recv(size - len(data))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise EOFError
            data += chunk
        return data

    def hello(self, **fields: object) -> Any:
        """Send one handshake frame with these fields over the usual ones; the reply."""
        usual = {
            "token": self.home.token_file.read_text().strip(),
            "protocol_version": 1,
            "client_version": "probe",
            "claimed_principal": None,
            "signature": None,
        }
        self.send(usual | fields)
        return self.read()

    def authenticate(self, principal: str = DEFAULT_PRINCIPAL, **fields: object) -> tuple[Any, Any]:
        """The whole handshake of a principal; both replies."""
        first = self.hello(claimed_principal=principal, **fields)
        seed = (self.home.keys / f"{principal}.key").read_bytes()
        text = f"astrid-principal-auth:v1:{principal}:{first['challenge']}".encode()
        signature = SigningKey(seed).sign(text).signature.hex()
        return first, self.hello(claimed_principal=principal, signature=signature, **fields)

    def ask(self, suffix: str, payload: Mapping[str, object], *, source_id: str = NIL) -> list[Any]:
        """Send a request on `astrid.v1.<suffix>` and read up to its answer; every frame that came."""
        topic = f"astrid.v1.{suffix}"
        self.send({"topic": topic, "payload": {"type": "raw_json", **payload}, "source_id": source_id})
        answer = topic.replace(".request.", ".response.").replace(".admin.", ".admin.response.")
        frames = [self.read()]
        while frames[-1]["topic"] != answer or frames[-1]["payload"].get("status") == "Working":
            frames.append(self.read())
        return frames

    def request(self, method: str, params: Mapping[str, object] | None = None, suffix: str = "any") -> Any:
        """A kernel request; the payload of its answer."""
        fields: dict[str, object] = {"method": method} | ({} if params is None else {"params": params})
        return self.ask(f"request.{suffix}.{uuid.uuid4().hex}", fields)[-1]["payload"]

    def tools(self, verb: str, params: Mapping[str, object] | None = None, corr: str | None = None) -> Any:
        """A request to the tools door; the payload of its answer."""
        fields: dict[str, object] = {} if params is None else {"params": params}
        return self.ask(f"request.tools.{verb}.{corr or uuid.uuid4().hex}", fields)[-1]["payload"]


class Daemon:
    """A daemon process of the checkout on a home of its own."""

    def __init__(self, home: Home, *arguments: str, cwd: Path | None = None) -> None:
        self.home = home
        imports = os.pathsep.join((*IMPORTS, str(ROOT / "runtime")))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "aos_runtime.daemon", "serve", *arguments],
            env={**os.environ, "AOS_HOME": str(home.root), "PYTHONPATH": imports},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=cwd,
        )

    def wait_ready(self) -> None:
        """Until the ready file is there; AssertionError with what it said where it ended before."""
        deadline = time.monotonic() + WAIT_S
        while not self._is_ready():
            assert self.process.poll() is None, self.words()
            assert time.monotonic() < deadline, "the daemon did not become ready"
            time.sleep(0.005)

    def _is_ready(self) -> bool:
        """Whether the ready file is this process's: one that a killed daemon left does not count."""
        try:
            pid = int(self.home.pid_file.read_text().splitlines()[0])
        except (FileNotFoundError, IndexError):
            return False
        return pid == self.process.pid and self.home.ready_file.exists()

    def words(self) -> str:
        """What it wrote on stderr; waits for its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def wait_end(self, timeout_s: float = WAIT_S) -> int:
        return self.process.wait(timeout_s)

    def limit_files(self, size_bytes: int) -> None:
        """From now on it can write no file beyond that size: what a full disk does to it."""
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size_bytes, hard))

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        if self.process.stderr is not None:
            self.process.stderr.close()


@contextmanager
def running(home: Home, *arguments: str) -> Iterator[Daemon]:
    """A daemon that is ready, stopped at the end."""
    daemon = Daemon(home, *arguments)
    try:
        daemon.wait_ready()
        yield daemon
    finally:
        daemon.stop()


@contextmanager
def connected(home: Home, **fields: object) -> Iterator[Client]:
    """An authenticated client of principal `default`."""
    with Client(home) as client:
        client.authenticate(**fields)  # type: ignore[arg-type]  # handshake fields
        yield client
