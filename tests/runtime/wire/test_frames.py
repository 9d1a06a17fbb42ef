from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.errors import LimitExceeded, PeerFault
from aos_runtime.wire import frames
from aos_runtime.wire.frames import CLIENT_MAX_FRAME_BYTES, MAX_FRAME_BYTES, FrameDecoder, encode_frame

bodies = st.lists(st.binary(max_size=64), max_size=6)


def _cut(data: bytes, points: list[int]) -> list[bytes]:
    edges = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def test_limits_are_the_published_ones() -> None:
    assert (MAX_FRAME_BYTES, frames.MAX_PAYLOAD_BYTES) == (2_097_152, 1_048_576)
    assert (frames.MAX_HANDSHAKE_BYTES, CLIENT_MAX_FRAME_BYTES) == (4096, 52_428_800)


def test_a_frame_is_its_length_in_big_endian_and_its_body() -> None:
    assert encode_frame(b'{"a":1}') == b'\x00\x00\x00\x07{"a":1}'
    assert encode_frame(b"") == b"\x00\x00\x00\x00"


@given(bodies)
def test_decode_of_encode_is_identity(sent: list[bytes]) -> None:
    assert FrameDecoder().feed(b"".join(map(encode_frame, sent))) == sent


@given(bodies, st.lists(st.integers(min_value=0, max_value=500)))
def test_chunks_do_not_matter(sent: list[bytes], points: list[int]) -> None:
    decoder = FrameDecoder()
    chunks = _cut(b"".join(map(encode_frame, sent)), points)
    assert [body for chunk in chunks for body in decoder.feed(chunk)] == sent
    decoder.finish()


@given(st.binary(max_size=200), st.integers(min_value=0, max_value=40))
def test_garbage_whole_is_garbage_byte_by_byte(data: bytes, limit: int) -> None:
    """Any bytes give frames and then perhaps one PeerFault, and the same ones however they arrive."""
    whole, single = FrameDecoder(limit), FrameDecoder(limit)
    assert _run(whole, [data]) == _run(single, [data[i : i + 1] for i in range(len(data))])


def _run(decoder: FrameDecoder, chunks: list[bytes]) -> tuple[list[bytes], str | None]:
    found: list[bytes] = []
    for chunk in chunks:
        try:
            found += decoder.feed(chunk)
        except PeerFault:
            break
    return found, None if decoder.fault is None else decoder.fault.message


def test_dmn_14_a_too_large_frame_is_known_from_its_prefix() -> None:
    decoder = FrameDecoder()
    with pytest.raises(PeerFault) as fault:
        decoder.feed((3 * 1024 * 1024).to_bytes(4, "big"))
    assert fault.value.code == "frame-too-large"
    assert fault.value.message == "a frame of 3145728 bytes is over the limit of 2097152 bytes"
    assert fault.value.context == {"size_bytes": 3145728, "limit_bytes": 2097152}


def test_dmn_14_a_large_result_within_the_limit_is_whole() -> None:
    for size in (70_000, 1024 * 1024, MAX_FRAME_BYTES):
        body = b"x" * size
        decoder = FrameDecoder()
        stream = encode_frame(body)
        received = [
            part for at in range(0, len(stream), 65_536) for part in decoder.feed(stream[at : at + 65_536])
        ]
        assert received == [body]
    assert FrameDecoder(CLIENT_MAX_FRAME_BYTES).feed(encode_frame(b"x" * 17_000_000)) == [b"x" * 17_000_000]


def test_frames_before_a_too_large_prefix_still_count() -> None:
    decoder = FrameDecoder(4)
    assert decoder.feed(encode_frame(b"ok") + b"\x00\x00\x00\x05") == [b"ok"]
    assert decoder.fault is not None
    with pytest.raises(PeerFault):
        decoder.feed(b"")


def test_a_failed_stream_stays_failed() -> None:
    decoder = FrameDecoder(4)
    with pytest.raises(PeerFault):
        decoder.feed(b"\x00\x00\x00\x05")
    with pytest.raises(PeerFault):
        decoder.feed(encode_frame(b"ok"))
    decoder.finish()


def test_the_limit_may_grow_between_two_frames_of_one_chunk() -> None:
    decoder = FrameDecoder(4)
    decoder.push(encode_frame(b"tiny") + encode_frame(b"larger"))
    assert decoder.next_frame() == b"tiny"
    decoder.max_bytes = 8
    assert decoder.next_frame() == b"larger"
    assert decoder.next_frame() is None


def test_the_end_inside_a_frame_is_a_fault_and_between_frames_is_not() -> None:
    decoder = FrameDecoder()
    decoder.feed(encode_frame(b"done"))
    decoder.finish()
    decoder.feed(b"\x00\x00\x00\x05ab")
    with pytest.raises(PeerFault) as fault:
        decoder.finish()
    assert fault.value.code == "frame-truncated"


def test_what_no_prefix_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_MAX_PREFIX", 3)
    with pytest.raises(LimitExceeded) as refusal:
        encode_frame(b"four")
    assert refusal.value.code == "frame-unsayable"
    assert refusal.value.context == {"size_bytes": 4, "limit_bytes": 3}
