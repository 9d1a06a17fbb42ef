"""What a ring keeps, gives and counts, against a plain list of bytes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.programs.rings import Ring

WRITES = st.lists(st.binary(max_size=12), max_size=20)


@given(WRITES, st.integers(1, 16))
def test_it_keeps_the_last_bytes_and_counts_what_was_lost(writes: list[bytes], limit: int) -> None:
    ring, whole = Ring(limit), b"".join(writes)
    for one in writes:
        ring.add(one)
    chunk = ring.since(None, 1000)
    assert chunk.data == whole[-limit:]
    assert (ring.dropped, ring.end, ring.unread) == (max(0, len(whole) - limit), len(whole), len(chunk.data))


@given(WRITES, st.integers(1, 16))
def test_a_cursor_gets_every_byte_or_is_told_how_many_it_lost(writes: list[bytes], limit: int) -> None:
    ring, offset, got, whole = Ring(limit), 0, b"", b""
    for number, one in enumerate(writes):
        ring.add(one)
        whole += one
        if number % 3 == 0:
            chunk = ring.since(offset, 5)
            got += b"?" * chunk.dropped + chunk.data
            offset = chunk.next_offset
    assert len(got) == offset
    assert all(mine in (b"?"[0], there) for mine, there in zip(got, whole, strict=False))


@given(WRITES, st.integers(1, 16))
def test_with_backpressure_nothing_unread_is_lost(writes: list[bytes], limit: int) -> None:
    ring, got = Ring(limit, has_backpressure=True), ""
    for one in writes:
        room = ring.room()
        ring.add(one)  # more than there is room for, as what is left in a pipe at the end
        assert ring.room() <= room
        if ring.room() == 0:
            got += ring.drain()
            assert ring.room() == limit
    ring.is_ended = True
    assert got + ring.drain() == b"".join(writes).decode("utf-8", "replace")
    assert ring.dropped == 0


def test_a_drain_says_what_was_lost_since_the_one_before() -> None:
    ring = Ring(4)
    ring.add(b"abcdef")
    assert ring.drain() == "... 2 bytes left out ...\ncdef"
    ring.add(b"gh")
    assert ring.drain() == "gh"
    ring.add(b"12345")
    assert ring.drain() == "... 1 bytes left out ...\n2345"
    assert ring.drain() == ""


@given(st.text(max_size=30), st.lists(st.integers(0, 60), max_size=8))
def test_drains_put_together_are_the_text(text: str, cuts: list[int]) -> None:
    data, ring, got = text.encode(), Ring(1000), ""
    places = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    for start, end in pairwise(places):
        ring.add(data[start:end])
        got += ring.drain()
    ring.is_ended = True
    assert got + ring.drain() == text


def test_a_drain_takes_nothing_from_cursors() -> None:
    ring = Ring(10)
    ring.add(b"abc")
    assert (ring.drain(), ring.drain(), ring.unread) == ("abc", "", 0)
    assert ring.since(None, 2) == (b"ab", 2, 0)
    assert ring.since(99, 5) == (b"", 3, 0)
