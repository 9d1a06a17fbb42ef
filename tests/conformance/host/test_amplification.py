"""What a guest can make of little memory: it names the same bytes again and again in one call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aos_runtime.host import TrapReason, wit
from tests.support import abi
from tests.support.canonical import Image
from tests.support.relay import IMAGE_AT, LANES, Relay

MOST_BYTES = 2_700_000
"""What wasmtime lets a guest of the component lane pass in one call, near enough: 128 MiB of 48 bytes."""


class Echoing(Image):
    """Each text is the same MiB of the guest's memory."""

    def point(self, at: int, count: int, kind: wit.Type) -> tuple[int, int]:
        return (1 << 20, 1 << 20) if kind == wit.Primitive("u8") else (at, count)


@pytest.mark.parametrize("lane", LANES)
def test_a_list_that_names_the_same_bytes_again_and_again_is_stopped(
    lane: str, relay: Callable[..., Relay]
) -> None:
    guest = relay(abi.ZOO, lane)
    [pairs] = [one for one in guest.functions if one.name == "pairs"]
    trap = guest.lie(pairs, [[("x", 1)] * 2000], [], image=Echoing(IMAGE_AT))
    assert trap is not None and trap.reason is TrapReason.TRAP
    assert trap.message.startswith("one call passed more")
    assert guest.script.seen == []


@pytest.mark.parametrize("lane", LANES)
def test_a_few_of_them_are_no_harm(lane: str, relay: Callable[..., Relay]) -> None:
    guest = relay(abi.ZOO, lane)
    [pairs] = [one for one in guest.functions if one.name == "pairs"]
    assert guest.lie(pairs, [[("x", 1)] * 20], [], image=Echoing(IMAGE_AT)) is None
    [(seen,)] = guest.script.seen
    assert [len(text) for text, _ in seen] == [1 << 20] * 20


class Large(Image):
    """A text or list of bytes of length one becomes a large one."""

    def point(self, at: int, count: int, kind: wit.Type) -> tuple[int, int]:
        return (at, count) if count > 1 else (1 << 20, MOST_BYTES)


@pytest.mark.parametrize("lane", LANES)
def test_cmp_18_megabytes_cross_in_either_lane(lane: str, relay: Callable[..., Relay]) -> None:
    guest = relay("astrid:fs/host@1.0.0", lane)
    [write] = [one for one in guest.functions if one.name == "write-file"]
    assert guest.lie(write, ["home://x", b"x"], None, image=Large(IMAGE_AT)) is None
    [(path, data)] = guest.script.seen
    assert (path, len(data)) == ("home://x", MOST_BYTES)


@pytest.mark.parametrize("lane", LANES)
def test_the_host_answers_with_a_megabyte(lane: str, relay: Callable[..., Relay]) -> None:
    guest = relay("astrid:fs/host@1.0.0", lane)
    [read] = [one for one in guest.functions if one.name == "read-file"]
    data = bytes(range(256)) * (1 << 12)
    assert guest.call(read, ["home://x"], data).result == data
