"""One C heap for all threads, asked of the C library itself in a process of the test's own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

from aos_runtime.daemon.heap import share_one_heap

PROGRAM = """
import ctypes, sys, threading
from aos_runtime.daemon.heap import share_one_heap
if sys.argv[1] == "shared":
    share_one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
together = threading.Barrier(4)
def allocate():
    together.wait(30)
    for _ in range(100):
        libc.malloc(ctypes.c_size_t(1000))
    together.wait(30)
threads = [threading.Thread(target=allocate) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stream)
libc.fflush(stream)
"""


def heaps(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, timeout=60, check=True)
    return done.stdout.count(b"<heap nr=")


def test_all_threads_share_one_heap() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        share_one_heap()  # not glibc: nothing to limit, and no error
        return
    assert heaps("shared") == 1
    assert heaps("as it comes") > 1
