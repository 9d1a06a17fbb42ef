"""CMP-09 and the forged file: whatever is wrong with precompiled code makes it a miss, never a failure."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aos_runtime.errors import Corrupt
from aos_runtime.host import Code, CodeCache, EngineSettings, HookResult, HostEngine, Instance
from aos_runtime.host import cache as cache_module
from aos_runtime.host import engine as engine_module
from aos_runtime.names import Digest
from tests.support.guests import ECHO, Recorder, component_of, guest_text, world_of

KEY = b"k" * 32


def component(mark: str = "") -> bytes:
    return component_of(guest_text(ECHO, imports="", more=f'(data (i32.const 1024) "{mark}")'), world_of())


def digest_of(data: bytes) -> Digest:
    return Digest(blake3(data).hexdigest())


class Source:
    """Gives a component's bytes and counts how often it was asked: a compile asks, a map does not."""

    def __init__(self, data: bytes) -> None:
        self.data, self.digest, self.asked = data, digest_of(data), 0

    def __call__(self) -> bytes:
        self.asked += 1
        return self.data


@pytest.fixture
def source() -> Source:
    return Source(component())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def runs(code: Code) -> bool:
    instance = Instance(code, Recorder().context())
    try:
        return instance.hook(b"a", b"b") == HookResult("a", b"b")
    finally:
        instance.close()


def test_a_miss_compiles_and_a_hit_does_not(engine: HostEngine, folder: Path, source: Source) -> None:
    for asked in (1, 1):
        code = CodeCache(engine, folder, KEY).load(source.digest, source)
        assert (runs(code), source.asked) == (True, asked)
    [file] = folder.iterdir()
    assert file.name == f"{source.digest}-{engine.fingerprint}.cwasm"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_code_that_is_in_use_is_shared(engine: HostEngine, folder: Path, source: Source) -> None:
    cache = CodeCache(engine, folder, KEY)
    code = cache.load(source.digest, source)
    next(folder.iterdir()).unlink()
    assert cache.load(source.digest, source) is code


def test_nobody_waits_for_the_compiling_of_another_component(
    engine: HostEngine, folder: Path, source: Source
) -> None:
    cache, other = CodeCache(engine, folder, KEY), Source(component("other"))
    asked, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        asked.set()
        assert go_on.wait(30)
        return source.data

    thread = threading.Thread(target=lambda: cache.load(source.digest, slow))
    thread.start()
    assert asked.wait(30)
    assert runs(cache.load(other.digest, other))
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()


def test_one_component_is_compiled_once_whoever_asks(
    engine: HostEngine, folder: Path, source: Source
) -> None:
    cache, codes = CodeCache(engine, folder, KEY), list[Code]()
    threads = [
        threading.Thread(target=lambda: codes.append(cache.load(source.digest, source))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(codes), len({id(code) for code in codes}), source.asked) == (4, 1, 1)


def test_precompile_replaces_what_is_there(engine: HostEngine, folder: Path, source: Source) -> None:
    CodeCache(engine, folder, KEY).precompile(source.digest, source.data)
    [file] = folder.iterdir()
    file.write_bytes(b"rubbish")
    CodeCache(engine, folder, KEY).precompile(source.digest, source.data)
    assert runs(CodeCache(engine, folder, KEY).load(source.digest, source))
    assert source.asked == 0


def test_what_is_known_of_the_component_comes_back(engine: HostEngine, folder: Path, source: Source) -> None:
    made = CodeCache(engine, folder, KEY).load(source.digest, source)
    mapped = CodeCache(engine, folder, KEY).load(source.digest, source)
    assert mapped is not made
    assert (mapped.interface, mapped.implemented) == (made.interface, made.implemented)


@pytest.fixture
def sealed(engine: HostEngine, folder: Path, source: Source) -> Path:
    """A valid file in the folder."""
    CodeCache(engine, folder, KEY).precompile(source.digest, source.data)
    return next(folder.iterdir())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_recompiled_never_run(
    engine: HostEngine, folder: Path, sealed: Path, data: st.DataObject
) -> None:
    whole = sealed.read_bytes()
    flipped = bytearray(whole)
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    sealed.write_bytes(flipped)
    source = Source(component())
    try:
        assert runs(CodeCache(engine, folder, KEY).load(source.digest, source))
        assert source.asked == 1
        assert sealed.read_bytes() == whole  # replaced by what it was
    finally:
        sealed.write_bytes(whole)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def _extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 4096)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _make_link(path: Path) -> None:
    real = path.with_name("elsewhere")
    path.rename(real)
    path.symlink_to(real)


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\x7fELF" + bytes(5000)),
        _truncate,
        _extend,
        _make_folder,
        _make_link,
        _make_pipe,
        lambda path: path.unlink(),
    ],
    ids=["empty", "another file", "half written", "too long", "folder", "link", "pipe", "gone"],
)
def test_cmp_09_a_file_that_is_no_code_is_a_miss(
    engine: HostEngine, folder: Path, sealed: Path, source: Source, damage: Callable[[Path], None]
) -> None:
    damage(sealed)
    assert runs(CodeCache(engine, folder, KEY).load(source.digest, source))
    assert source.asked == 1


def test_code_under_another_key_is_a_miss(
    engine: HostEngine, folder: Path, sealed: Path, source: Source
) -> None:
    CodeCache(engine, folder, b"x" * 32).load(source.digest, source)
    assert source.asked == 1


def test_files_cannot_trade_places(engine: HostEngine, folder: Path, sealed: Path) -> None:
    other = Source(component("other"))
    sealed.rename(folder / f"{other.digest}-{engine.fingerprint}.cwasm")
    assert runs(CodeCache(engine, folder, KEY).load(other.digest, other))
    assert other.asked == 1


def test_cmp_09_another_engine_does_not_find_it(
    folder: Path, sealed: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_cpu", lambda: "another processor")
    other = HostEngine(EngineSettings())
    try:
        code = CodeCache(other, folder, KEY).load(source.digest, source)
        assert (runs(code), source.asked) == (True, 1)
        assert [path.name for path in folder.iterdir()] == [f"{source.digest}-{other.fingerprint}.cwasm"]
    finally:
        other.close()


def test_cmp_09_a_folder_that_cannot_be_written_costs_only_time(
    engine: HostEngine, tmp_path: Path, source: Source
) -> None:
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    for asked in (1, 2):
        assert runs(CodeCache(engine, tmp_path / "cache", KEY).load(source.digest, source))
        assert source.asked == asked


def test_where_a_file_has_no_name_by_its_handle_the_checked_bytes_are_used(
    engine: HostEngine, folder: Path, sealed: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "sys", SimpleNamespace(platform="darwin"))
    assert runs(CodeCache(engine, folder, KEY).load(source.digest, source))
    assert source.asked == 0


def test_the_bytes_must_be_those_of_the_digest(engine: HostEngine, folder: Path, source: Source) -> None:
    with pytest.raises(Corrupt) as caught:
        CodeCache(engine, folder, KEY).load(source.digest, lambda: component("other"))
    assert caught.value.code == "component-digest"
    assert not folder.exists()


def test_sweep_keeps_what_lives(engine: HostEngine, folder: Path, source: Source) -> None:
    cache, gone = CodeCache(engine, folder, KEY), Source(component("gone"))
    cache.precompile(source.digest, source.data)
    cache.precompile(gone.digest, gone.data)
    assert cache.sweep([source.digest]) == 1
    assert [path.name.split("-")[0] for path in folder.iterdir()] == [source.digest]
