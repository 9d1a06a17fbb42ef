"""What a guest can wait for, and the waiting: many sources at once, until one is ready or the call must end.

A source is a small object that some port made: a subscription, a socket, a pipe, the end of a child.  One
that has a descriptor is waited for by the kernel of the machine; the others are asked at every slice.
Nothing here knows a handle or a guest.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

SLICE_S = 0.02
"""How long a wait goes on before it asks again whether it may."""


class Source(Protocol):
    """Something that becomes ready."""

    def is_ready(self) -> bool:
        """Whether what waits for it would not wait now; never blocks, changes nothing."""
        ...

    def descriptor(self) -> tuple[int, int] | None:
        """The descriptor and the `select.POLLIN` or `POLLOUT` to wait for; None where there is none."""
        ...


class Always:
    """A source that is always ready: a stream that has ended, a thing that is closed."""

    def is_ready(self) -> bool:
        return True

    def descriptor(self) -> tuple[int, int] | None:
        return None


def wait_any(
    sources: Sequence[Source], *, is_over: Callable[[], bool], timeout_s: float | None = None
) -> list[int]:
    """The places in `sources` of those that are ready, ascending; empty after `timeout_s` or once `is_over`.

    None: without a limit but `is_over`, which is asked every `SLICE_S`.
    """
    ends = None if timeout_s is None else monotonic() + timeout_s
    while True:
        ready = [place for place, source in enumerate(sources) if source.is_ready()]
        if ready or is_over():
            return ready
        left_s = SLICE_S if ends is None else min(SLICE_S, ends - monotonic())
        if left_s <= 0:
            return []
        _wait_for_descriptors(sources, left_s)


def _wait_for_descriptors(sources: Sequence[Source], timeout_s: float) -> None:
    events: dict[int, int] = {}
    for source in sources:
        waited = source.descriptor()
        if waited is not None:  # both ends of a connection have the same one
            events[waited[0]] = events.get(waited[0], 0) | waited[1]
    poller = select.poll()
    for descriptor, wanted in events.items():
        poller.register(descriptor, wanted)
    poller.poll(timeout_s * 1000)
