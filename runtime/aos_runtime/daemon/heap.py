"""The C heap of the daemon: one for all threads.  Nothing here knows what is kept in it."""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8
"""The parameter of `mallopt` in glibc's <malloc.h>."""


def share_one_heap() -> None:
    """Give all threads one heap; before any is started.

    glibc makes up to eight heaps a core, and each keeps the most that its threads ever held: under load the
    resident size crept up by 6 % in ten minutes, with one heap by 2 %, at the same rate.  Does nothing where
    the C library has no such heaps.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
