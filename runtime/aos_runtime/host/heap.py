"""The C heap that everything native here shares: how many there are, and what goes back to the system.

Does nothing where the C library is not glibc.  Nothing here knows what is kept in the heap.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8
"""The parameter of `mallopt` in glibc's <malloc.h>."""

_library = ctypes.CDLL(None)


def share_one_heap() -> None:
    """Give all threads one heap; before any is started.

    glibc makes up to eight heaps a core, and each keeps the most that its threads ever held: under load the
    resident size crept up by 6 % in ten minutes, with one heap by 2 %, at the same rate.
    """
    mallopt = getattr(_library, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return to the system what is free: compiling takes hundreds of megabytes, for seconds."""
    malloc_trim = getattr(_library, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(ctypes.c_size_t(0))
