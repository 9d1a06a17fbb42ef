"""A daemon whose home lies on a small disk of its own, which a test can fill and free.

The disk is a tmpfs in a mount namespace that bubblewrap makes, so a full one is the kernel's own ENOSPC, for
every file and for this daemon alone.  What happens there is seen from outside through `/proc/PID/root`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from aos_runtime.home import Home
from tests.support.installation import ROOT, wait_until

START_S = 60.0
STOP_S = 30.0
BLOCK_BYTES = 4096


class SmallDisk:
    """`source` is the home to begin with, `free_bytes` the space beside it; what is left of it is at `after`
    in the end.
    """

    def __init__(self, source: Home, after: Home, free_bytes: int) -> None:
        self._mount = Path(tempfile.mkdtemp(prefix="aos-disk-", dir="/tmp"))
        used = sum(path.lstat().st_size + BLOCK_BYTES for path in source.root.rglob("*"))
        life = 'cp -a "$1" "$2"; from=$2; to=$3; shift 3; "$@"; status=$?; cp -a "$from" "$to"; exit $status'
        homes = (source.root, self._mount / "home", after.root)
        daemon = (sys.executable, "-P", "-m", "aos_runtime.daemon", "serve", "--foreground")
        self._walls = subprocess.Popen(
            [
                *("bwrap", "--dev-bind", "/", "/", "--size", str(used + free_bytes), "--tmpfs", self._mount),
                *("sh", "-c", life, "sh", *homes, *daemon),
            ],
            env={
                **os.environ,
                "AOS_HOME": str(self._mount / "home"),
                "PYTHONPATH": str(ROOT / "runtime"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._inside = 0
        """The shell in the namespace."""

    @property
    def disk(self) -> Path:
        return Path(f"/proc/{self._inside}/root{self._mount}")

    @property
    def home(self) -> Home:
        """The home, as this process can reach it while the daemon lives."""
        return Home(self.disk / "home")

    def __enter__(self) -> SmallDisk:
        try:
            wait_until(self._is_ready, "the daemon on the small disk is ready", timeout_s=START_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fill(self) -> None:
        """Leave not a block."""
        with (self.disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(bytes(BLOCK_BYTES)) == BLOCK_BYTES:
                pass
        stat = os.statvfs(self.disk)
        assert stat.f_bavail == 0, "the disk is full"

    def free(self) -> None:
        """Give all of it back."""
        (self.disk / "ballast").unlink()

    def stop(self) -> int:
        """End the daemon; its status."""
        os.kill(self._daemon_pid(), signal.SIGTERM)
        return self._walls.wait(STOP_S)

    def close(self) -> None:
        if self._walls.poll() is None:
            with contextlib.suppress(OSError, IndexError):
                os.kill(self._daemon_pid(), signal.SIGKILL)
            self._walls.wait(STOP_S)
        assert self._walls.stderr is not None
        self._walls.stderr.close()
        shutil.rmtree(self._mount)

    def _is_ready(self) -> bool:
        status = self._walls.poll()
        if status is not None:
            assert self._walls.stderr is not None
            raise AssertionError(f"ended with {status}: {self._walls.stderr.read().decode()}")
        children = Path(f"/proc/{self._walls.pid}/task/{self._walls.pid}/children").read_text().split()
        self._inside = int(children[0]) if children else 0
        return bool(self._inside) and self.home.ready_file.exists()

    def _daemon_pid(self) -> int:
        return int(self.home.pid_file.read_text().splitlines()[0])
