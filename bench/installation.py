"""The installed wheel that is measured, in a throw-away home: capsules in, daemon up, sockets out.

The interpreter that runs this is the one of the wheel's environment (`scripts/bench` makes it), so `aos`
here is what a user gets, in its default configuration.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import SigningKey

from aos_runtime import AOS_VERSION
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName, parse_principal_name
from aos_runtime.wire.frames import FrameDecoder, encode_frame
from aos_runtime.wire.handshake_client import ClientHandshake, ServerHello

READY_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 300.0
POLL_S = 0.001


class BenchFailed(Exception):
    """Something that must work before it can be timed did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The command `aos` of this environment, and one home that nothing else uses."""

    home: Home

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AOS_", "ASTRID_"))}
        return {**kept, "AOS_HOME": str(self.home.root), "NO_COLOR": "1"}

    @property
    def aos(self) -> str:
        return str(Path(sys.executable).with_name("aos"))

    def run(self, *arguments: str, folder: Path | None = None) -> str:
        """Run `aos ARGUMENTS` to its end and give its stdout.  BenchFailed where it does not succeed."""
        ended = subprocess.run(
            [self.aos, *arguments],
            cwd=folder or self.home.root,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        if ended.returncode != 0:
            raise BenchFailed(
                f"`aos {' '.join(arguments)}` ended with {ended.returncode}: {ended.stderr.strip()}"
            )
        return ended.stdout

    def boot(self) -> tuple[Daemon, float]:
        """Start the daemon in the foreground of a child; seconds from exec to its ready file."""
        self.home.ready_file.unlink(missing_ok=True)
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "aos_runtime.daemon", "serve"],
            cwd=self.home.root,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not self.home.ready_file.exists():
            if process.poll() is not None or time.perf_counter() - started > READY_TIMEOUT_S:
                process.kill()
                raise BenchFailed(f"the daemon did not get ready (exit status {process.poll()})")
            time.sleep(POLL_S)
        return Daemon(process=process, home=self.home), time.perf_counter() - started

    @contextmanager
    def daemon(self) -> Iterator[Daemon]:
        """A running daemon, stopped at the end."""
        daemon, _ = self.boot()
        try:
            yield daemon
        finally:
            daemon.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A daemon that was started here, and its home."""

    process: subprocess.Popen[bytes]
    home: Home

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(READY_TIMEOUT_S)

    def resident_mb(self) -> float:
        """VmRSS in units of 10**6 bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024 / 1e6

    def connect(self, principal: str = DEFAULT_PRINCIPAL) -> socket.socket:
        """An authenticated connection of a principal."""
        name = parse_principal_name(principal)
        return connect(self.home.socket, self.home.token_file, self.home.principal_key(name), name)


def connect(
    path: Path, token_file: Path, key_file: Path, principal: PrincipalName = DEFAULT_PRINCIPAL
) -> socket.socket:
    """An authenticated connection to the daemon at `path`: both runtimes shake hands alike."""
    key = SigningKey(key_file.read_bytes())
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10.0)
    connection.connect(str(path))
    session = ClientHandshake(
        token_file.read_text(encoding="ascii").strip(),
        AOS_VERSION,
        principal,
        sign=lambda message: key.sign(message).signature,
    )
    decoder = FrameDecoder()
    answer: bytes | ServerHello = session.start()
    while isinstance(answer, bytes):
        connection.sendall(encode_frame(answer))
        answer = session.receive(_read_frame(connection, decoder))
    return connection


def _read_frame(connection: socket.socket, decoder: FrameDecoder) -> bytes:
    while True:
        data = connection.recv(1 << 16)
        if not data:
            raise BenchFailed("the daemon closed the connection during the handshake")
        frames = decoder.feed(data)
        if frames:
            return frames[0]


@contextmanager
def throwaway_installation() -> Iterator[Installation]:
    """An installation in a new home below the temporary folder, removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="aos-bench-"))
    try:
        yield Installation(home=Home(root / "home"))
    finally:
        shutil.rmtree(root, ignore_errors=True)
