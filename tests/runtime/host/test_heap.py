"""The C heap, asked of the C library itself in a process of the test's own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

from aos_runtime.host.heap import give_back, share_one_heap

IS_GLIBC = hasattr(ctypes.CDLL(None), "malloc_info")
START = """
import ctypes, resource, sys, threading
from pathlib import Path
from aos_runtime.host.heap import give_back, share_one_heap
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
"""
HEAPS = """
if sys.argv[1] == "shared":
    share_one_heap()
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
RESIDENT = """
def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
blocks = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(4000))) for _ in range(20_000)]
for block in blocks:
    ctypes.memset(block, 1, 4000)
last = libc.malloc(ctypes.c_size_t(4000))
for block in blocks:
    libc.free(block)
before = resident_bytes()
give_back()
print(before - resident_bytes())
"""


def run(program: str, *arguments: str) -> bytes:
    command = [sys.executable, "-c", START + program, *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


def test_all_threads_share_one_heap() -> None:
    if not IS_GLIBC:
        share_one_heap()  # nothing to limit, and no error
        return
    assert run(HEAPS, "shared").count(b"<heap nr=") == 1
    assert run(HEAPS, "as it comes").count(b"<heap nr=") > 1


def test_what_is_free_goes_back_to_the_system_though_something_lies_above_it() -> None:
    if not IS_GLIBC:
        give_back()
        return
    assert int(run(RESIDENT)) > 60_000_000
