"""Encodings undone in bounded steps."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.network.bodies import CHUNK_BYTES, Body, decoded, encodings_of
from aos_runtime.network.faults import Fault, NetworkFault, NothingYet


class Parts:
    """A body in parts; None is a moment when there is nothing yet."""

    def __init__(self, parts: Sequence[bytes | None]) -> None:
        self._parts: Iterator[bytes | None] = iter([part for part in parts if part != b""])
        self.taken = 0

    def read(self) -> bytes:
        part = next(self._parts, b"")
        if part is None:
            raise NothingYet
        self.taken += len(part)
        return part


def deflate_raw(data: bytes) -> bytes:
    maker = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return maker.compress(data) + maker.flush()


MAKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}


def whole(body: Body) -> bytes:
    data = b""
    while True:
        try:
            part = body.read()
        except NothingYet:
            continue
        if not part:
            return data
        assert len(part) <= CHUNK_BYTES
        data += part


@given(
    st.binary(max_size=2000),
    st.integers(1, 400),
    st.lists(st.sampled_from(sorted(MAKERS)), max_size=3),
    st.lists(st.integers(1, 400_000), max_size=6),
)
def test_what_was_encoded_comes_back_whatever_the_parts(
    data: bytes, times: int, names: list[str], cuts: list[int]
) -> None:
    data *= times
    sent = data
    for name in names:
        sent = MAKERS[name](sent)
    parts: list[bytes | None] = []
    for cut in cuts:
        parts += [sent[:cut], None]
        sent = sent[cut:]
    assert whole(decoded(Parts([*parts, sent]), names)) == data


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_deflate_comes_bare_or_framed(cut: int) -> None:
    for sent in (deflate_raw(b"hello"), zlib.compress(b"hello")):
        assert whole(decoded(Parts([sent[:cut], None, sent[cut:]]), ["deflate"])) == b"hello"


def test_gzip_has_members_and_padding() -> None:
    sent = gzip.compress(b"one") + gzip.compress(b"two")
    for parts in ([sent], [bytes([byte]) for byte in sent], [sent + b"\0\0"], [sent, b"\0"]):
        assert whole(decoded(Parts(parts), ["gzip"])) == b"onetwo"


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_abi_16_a_bomb_costs_what_was_read_of_it(name: str) -> None:
    bomb = MAKERS[name](bytes(50_000_000))
    source = Parts([bomb[place : place + 256] for place in range(0, len(bomb), 256)])
    body = decoded(source, [name])
    assert sum(len(body.read()) for _ in range(10)) <= 10 * CHUNK_BYTES
    assert source.taken <= 4096


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_abi_16_a_wrong_encoding_is_a_fault(name: str) -> None:
    with pytest.raises(NetworkFault) as caught:
        whole(decoded(Parts([b"<html>not encoded at all</html>"]), [name]))
    assert caught.value.fault is Fault.PROTOCOL
    assert caught.value.text == f"the body is not {name}, as its headers say"


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_body_that_ends_inside_its_encoding_is_a_fault(name: str) -> None:
    with pytest.raises(NetworkFault, match="in the middle"):
        whole(decoded(Parts([MAKERS[name](b"hello" * 100)[:-6]]), [name]))


@pytest.mark.parametrize(
    ("values", "encodings"),
    [
        ((), ()),
        (("gzip",), ("gzip",)),
        (("GZIP, zstd", "identity"), ("gzip", "zstd")),
        (("br",), None),
        (("gzip, br",), None),
    ],
)
def test_encodings_are_read(values: tuple[str, ...], encodings: tuple[str, ...] | None) -> None:
    assert encodings_of(values) == encodings


def test_abi_16_more_than_three_encodings_are_refused() -> None:
    with pytest.raises(NetworkFault):
        encodings_of(["gzip, gzip, gzip, gzip"])
