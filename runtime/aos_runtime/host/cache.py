"""Precompiled code on disk: checked under a key, then mapped.

wasmtime runs whatever precompiled bytes it is given, so a file counts only with a keyed BLAKE3 of its
content and its name, checked and mapped through the same open file.  Whatever is wrong with a file (another
wasmtime, another CPU, cut off, flipped, forged, unreadable) makes it a miss: the component is compiled
again and the file replaced.  A folder that cannot be written costs time, never a failure (case CMP-09).

File `<blake3 of the component>-<fingerprint>.cwasm`: module or component, interface as JSON, `_FOOTER` (their
sizes, magic), MAC. The folder belongs to the daemon alone: nothing else may write it between check and use.
"""

from __future__ import annotations

import contextlib
import hmac
import mmap
import os
import stat
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec
from blake3 import blake3
from wasmtime import Module, WasmtimeError
from wasmtime.component import Component

from aos_runtime.errors import AosError, Corrupt
from aos_runtime.host import wit
from aos_runtime.host.code import Code, ComponentCode, EdgeCode, compile_component
from aos_runtime.host.engine import HostEngine
from aos_runtime.host.heap import give_back
from aos_runtime.names import Digest
from aos_runtime.store.files import make_private_folder, write_atomic

_FOOTER = struct.Struct("<QQ8s")
_MAGIC = b"aoscode1"
_MAC_BYTES = 32
_MAX_FILE_BYTES = 1 << 30
_SUFFIX = ".cwasm"


class CodeCache:
    """Code by the digest of its component, in memory and on disk.  Safe to use from many threads."""

    def __init__(self, engine: HostEngine, folder: Path, key: bytes) -> None:
        """`key`: 32 bytes that only this home has (`store.keys.cache_key`)."""
        self._engine, self._folder, self._key = engine, folder, key
        self._live: weakref.WeakValueDictionary[Digest, Code] = weakref.WeakValueDictionary()
        self._turns: weakref.WeakValueDictionary[Digest, threading.Lock] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def load(self, digest: Digest, wasm: Callable[[], bytes]) -> Code:
        """The code of the component with this digest; `wasm` gives its bytes and is called only on a miss.

        Raises what `compile_component` raises, what `wasm` raises, and Corrupt `component-digest`.
        """
        with self._turn(digest):
            code = self._live.get(digest) or self._map(digest) or self._compile(digest, wasm())
            self._live[digest] = code
            return code

    def precompile(self, digest: Digest, wasm: bytes) -> Code:
        """Compile and keep, as activation does; whatever was there is replaced.  Raises as `load`."""
        with self._turn(digest):
            code = self._compile(digest, wasm)
            self._live[digest] = code
            return code

    def sweep(self, live: Collection[Digest]) -> int:
        """Remove what is not this engine's code of a component in `live`; how many files went."""
        wanted = {self._path(digest).name for digest in live}
        gone = 0
        with contextlib.suppress(OSError):
            for path in list(self._folder.glob(f"*{_SUFFIX}")):
                if path.name not in wanted:
                    path.unlink(missing_ok=True)
                    gone += 1
        return gone

    def _turn(self, digest: Digest) -> threading.Lock:
        """Held while a component is compiled or mapped, which may take seconds: nobody else waits for it."""
        with self._lock:
            return self._turns.setdefault(digest, threading.Lock())

    def _path(self, digest: Digest) -> Path:
        return self._folder / f"{digest}-{self._engine.fingerprint}{_SUFFIX}"

    def _compile(self, digest: Digest, component: bytes) -> Code:
        if blake3(component).hexdigest() != digest:
            raise Corrupt(
                "component-digest",
                f"the component is not the one with digest {digest[:16]}",
                hint="install the capsule again",
                digest=digest,
            )
        code = compile_component(self._engine, component)
        with contextlib.suppress(AosError, OSError):
            make_private_folder(self._folder)
            write_atomic(self._path(digest), self._seal(digest, code), sync=False)
            self._drop_others(digest)
        give_back()
        return code

    def _drop_others(self, digest: Digest) -> None:
        """Remove what other engines have compiled of this component."""
        own = self._path(digest)
        for path in list(self._folder.glob(f"{digest}-*{_SUFFIX}")):
            if path != own:
                path.unlink(missing_ok=True)

    def _seal(self, digest: Digest, code: Code) -> bytes:
        module, interface = code.serialize(), wit.encode_interface(code.interface)
        body = b"".join((module, interface, _FOOTER.pack(len(module), len(interface), _MAGIC)))
        return body + self._mac(digest, body)

    def _mac(self, digest: Digest, body: bytes | memoryview) -> bytes:
        """Binds the content to the component and the engine, so that files cannot trade places."""
        mac = blake3(key=self._key)
        mac.update(f"{digest} {self._engine.fingerprint} ".encode())
        mac.update(body)
        return bytes(mac.digest())

    def _map(self, digest: Digest) -> Code | None:
        """The code in the file, or None whatever the reason."""
        try:
            with _opened(self._path(digest)) as (handle, content):
                interface_bytes = self._check(digest, content)
                if interface_bytes is None:
                    return None
                interface = wit.decode_interface(interface_bytes)
                return self._map_code(handle, content, interface)
        except (OSError, ValueError, msgspec.MsgspecError, WasmtimeError):
            return None

    def _check(self, digest: Digest, content: memoryview) -> bytes | None:
        """The interface part of a file whose MAC is right."""
        end = len(content) - _MAC_BYTES
        start = end - _FOOTER.size
        if start < 0 or not hmac.compare_digest(self._mac(digest, content[:end]), bytes(content[end:])):
            return None
        module_size, interface_size, magic = _FOOTER.unpack_from(content, start)
        if magic != _MAGIC or module_size + interface_size != start:
            return None
        return bytes(content[module_size:start])

    def _map_code(self, handle: int, content: memoryview, interface: wit.Interface) -> Code:
        engine = self._engine.engine
        is_edge = interface.memory_pages is None
        if sys.platform == "linux":
            # The same open file that was checked, whatever the name leads to by now.
            path = f"/proc/self/fd/{handle}"
            if is_edge:
                return EdgeCode(self._engine, Module.deserialize_file(engine, path), interface)
            return ComponentCode(self._engine, Component.deserialize_file(engine, path), interface)
        size = _FOOTER.unpack_from(content, len(content) - _MAC_BYTES - _FOOTER.size)[0]
        if is_edge:
            return EdgeCode(self._engine, Module.deserialize(engine, bytes(content[:size])), interface)
        return ComponentCode(self._engine, Component.deserialize(engine, bytes(content[:size])), interface)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[int, memoryview]]:
    """A regular file of this user, open and mapped for reading."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.getuid()
            or status.st_size > _MAX_FILE_BYTES
        ):
            raise ValueError("not a file of ours")
        with mmap.mmap(handle, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as content:
            yield handle, content
    finally:
        os.close(handle)
