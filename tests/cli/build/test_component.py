"""From a core module to a component, with modules made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_cli.build.component import check_wit_folder, make_component, wasm_tools_version
from aos_runtime.errors import AosError, BuildFailed


def section(number: int, body: bytes) -> bytes:
    return bytes((number, len(body))) + body


def name(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def core(*imports: tuple[str, str]) -> bytes:
    """A core module that imports functions `() -> ()`."""
    types = section(1, b"\x01\x60\x00\x00")
    rows = b"".join(name(module) + name(function) + b"\0\0" for module, function in imports)
    return b"\0asm\x01\0\0\0" + types + section(2, bytes((len(imports),)) + rows)


COMPONENT = b"\0asm\x0d\0\x01\0"


def failure(data: bytes, libraries: dict[str, Path] | None = None) -> AosError:
    with pytest.raises(BuildFailed) as caught:
        make_component(data, libraries or {})
    return caught.value


def test_a_component_is_validated_and_kept() -> None:
    made = make_component(COMPONENT, {})
    assert (made.data, made.imports) == (COMPONENT, ())


def test_bld_13_each_foreign_import_is_named(tmp_path: Path) -> None:
    asking, innocent = tmp_path / "asking.rlib", tmp_path / "innocent.rlib"
    asking.write_bytes(b"...host_thing...")
    innocent.write_bytes(b"...")
    data = core(("env", "host_thing"), ("astrid:sys/host@1.0.0", "log"), ("wasi:io/poll@0.2.0", "poll"))
    error = failure(data, {"zeta": asking, "alpha": innocent, "gone": tmp_path / "gone.rlib"})
    assert error.code == "foreign-imports"
    assert error.message == (
        "the capsule imports env::host_thing, wasi:io/poll@0.2.0::poll (asked for by zeta), and only astrid:*"
        " interfaces may be imported"
    )


def test_bld_21_what_the_encoder_cannot_read_names_both_versions() -> None:
    custom = b"component-type:wit-bindgen:9.9.9:x"
    error = failure(core() + section(0, name(custom.decode()) + b"junk"))
    assert error.code == "component-encoding"
    assert f"wasm-tools {wasm_tools_version()} " in error.message
    assert "wit-bindgen:9.9.9" in error.message


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "empty"), (b"<html>", "web page"), (b"\x7fELF....", "native program"), (b"hello", "text")],
)
def test_what_is_no_wasm_is_said_to_be_what_it_is(data: bytes, said: str) -> None:
    assert failure(data).message == f"cargo's artifact is no WebAssembly module but: {said}"


def test_a_broken_component_is_not_accepted() -> None:
    assert failure(COMPONENT + b"\x01\xff").code == "component-encoding"


def test_a_wit_folder_that_resolves_and_one_that_does_not(tmp_path: Path) -> None:
    (tmp_path / "a.wit").write_text("package x:y;\ninterface a { f: func(); }\n")
    assert check_wit_folder(tmp_path) is None
    (tmp_path / "a.wit").write_text("package x:y;\ninterface a { use other.{t}; }\n")
    assert check_wit_folder(tmp_path) == "interface or world `other` does not exist --> a.wit:2:19"
