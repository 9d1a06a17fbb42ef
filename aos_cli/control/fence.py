"""One starter at a time per home: a lock outside the home, held only while a daemon is being started or
stopped.

It lives in the temporary folder because the home may not exist yet (daemon-kernel.md 1.7).  The daemon's
own singleton lock is what makes two daemons impossible; this one makes two starters wait for each other
instead of racing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aos_runtime.errors import Denied, Unavailable
from aos_runtime.home import Home

_PAUSE_S = 0.05


@contextmanager
def hold_fence(home: Home, *, timeout_s: float) -> Iterator[None]:
    """Hold the fence of `home`.  Unavailable `start-busy` where another aos holds it over `timeout_s`."""
    handle = _open(home)
    try:
        _lock(handle, timeout_s)
        yield
    finally:
        os.close(handle)


def _open(home: Home) -> int:
    folder = _folder()
    name = hashlib.blake2s(os.fsencode(home.root), digest_size=16).hexdigest()
    handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1 or facts.st_uid != os.getuid():
        os.close(handle)
        raise _foreign(folder)
    return handle


def _folder() -> Path:
    """A private folder of this user in the temporary folder."""
    folder = Path(tempfile.gettempdir()) / f"aos-start-fences-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise _foreign(folder) from None
    return folder


def _foreign(folder: Path) -> Denied:
    return Denied(
        "fence-foreign",
        f"{folder} is not a private folder of this user",
        hint="remove it, or set TMPDIR to a folder of your own",
    )


def _lock(handle: int, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise Unavailable(
                    "start-busy",
                    f"another aos has been starting or stopping this daemon for over {timeout_s:g} s",
                    hint="wait for it, then look at `aos status`",
                ) from None
            time.sleep(_PAUSE_S)
        else:
            return
