"""Reading the manifest of a build and binding it to what is packed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from blake3 import blake3

from aos_cli.build.cargo import Crate
from aos_cli.build.plan import (
    Source,
    bind_manifest,
    manifest_warnings,
    named_files,
    read_source,
    reference_warnings,
    strict_failure,
)
from aos_runtime.capsule.manifest import parse_manifest
from aos_runtime.errors import InvalidInput, Issue

PACKAGE = Crate(id="x", name="demo", version="0.1.0", source=None, folder=Path("/p"))
HEAD = '[package]\nname = "demo"\nversion = "0.1.0"\n'
ROW = '[[component]]\nid = "demo"\nfile = "demo.wasm" # packed\n'
WASM = b"\0asm component"


def source(text: str) -> Source:
    return Source(data=text.encode(), manifest=parse_manifest(text.encode()))


def test_a_manifest_that_fits_is_packed_byte_for_byte() -> None:
    text = "# mine\r\n" + HEAD + ROW
    bound = bind_manifest(source(text), "demo", WASM)
    assert (bound.data, bound.changes) == (text.encode(), ())


@pytest.mark.parametrize("file", ["my-capsule.wasm", "target/x.wasm"])
def test_man_10_the_file_becomes_what_cargo_made_and_that_is_said(file: str) -> None:
    text = HEAD + ROW.replace("demo.wasm", file)
    bound = bind_manifest(source(text), "my_capsule", WASM)
    assert bound.data.decode() == HEAD + ROW.replace("demo.wasm", "my_capsule.wasm")
    assert bound.changes == (f"the component's file was {file!r}, and is 'my_capsule.wasm' as cargo made it",)


def test_man_10_a_path_out_of_the_folder_is_refused() -> None:
    with pytest.raises(InvalidInput, match="leaves the capsule's folder"):
        source(HEAD + ROW.replace("demo.wasm", "../x.wasm"))


def test_man_10_several_components_are_refused() -> None:
    two = HEAD + ROW + ROW.replace("demo.wasm", "other.wasm")
    with pytest.raises(InvalidInput) as caught:
        bind_manifest(source(two), "demo", WASM)
    assert caught.value.code == "manifest-components"
    with pytest.raises(InvalidInput, match="names already"):
        source(HEAD + ROW + ROW)


def test_the_older_key_is_kept() -> None:
    bound = bind_manifest(source(HEAD + '[[component]]\nentrypoint = "old.wasm"\n'), "demo", WASM)
    assert bound.data.decode() == HEAD + '[[component]]\nentrypoint = "demo.wasm"\n'


def test_a_missing_component_is_added() -> None:
    bound = bind_manifest(source(HEAD), "demo", WASM)
    component = bound.manifest.component
    assert component is not None
    assert (component.id, component.file, component.type) == ("demo", "demo.wasm", "executable")
    assert bound.data.startswith(HEAD.encode())


@pytest.mark.parametrize(
    ("kind", "digest"),
    [("sha256", hashlib.sha256(WASM).hexdigest()), ("blake3", blake3(WASM).hexdigest())],
)
def test_a_hash_that_is_there_is_rewritten_in_its_own_algorithm(kind: str, digest: str) -> None:
    bound = bind_manifest(source(HEAD + ROW + f'hash = "{kind}:{"0" * 64}"\n'), "demo", WASM)
    assert bound.data.decode() == HEAD + ROW + f'hash = "{kind}:{digest}"\n'
    assert bound.changes == (f"the component's hash is now {kind}:{digest}",)
    assert bind_manifest(source(bound.data.decode()), "demo", WASM).changes == ()


def test_a_project_without_a_manifest_gets_the_smallest_one(tmp_path: Path) -> None:
    found, issue = read_source(tmp_path, PACKAGE)
    assert found.data.decode() == HEAD + 'description = ""\n'
    assert issue is not None and "cannot use the bus" in issue.message


def test_a_manifest_is_read_with_its_mark_taken_off(tmp_path: Path) -> None:
    (tmp_path / "Capsule.toml").write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    assert read_source(tmp_path, PACKAGE) == (source(HEAD), None)


def test_arc_14_a_manifest_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text(HEAD)
    (tmp_path / "Capsule.toml").symlink_to("real.toml")
    with pytest.raises(InvalidInput) as caught:
        read_source(tmp_path, PACKAGE)
    assert caught.value.code == "symlink-refused"


def test_man_03_unknown_keys_are_doubtful_and_retired_sections_only_noted() -> None:
    text = HEAD + '[capabilites]\nnet = ["*"]\n[[topic]]\nname = "x"\n'
    doubtful, notes = manifest_warnings(source(text).manifest, PACKAGE)
    assert [(issue.line, issue.hint) for issue in doubtful] == [(4, "did you mean `capabilities`?")]
    assert [issue.line for issue in notes] == [6]


def test_two_versions_are_doubtful() -> None:
    text = HEAD.replace("0.1.0", "0.2.0")
    doubtful, _ = manifest_warnings(source(text).manifest, PACKAGE)
    assert [issue.message for issue in doubtful] == ["the version is 0.2.0 here and 0.1.0 in Cargo.toml"]


def test_a_requirement_that_shuts_this_runtime_out_is_doubtful() -> None:
    doubtful, _ = manifest_warnings(source(HEAD + 'astrid-version = "0.7"\n').manifest, PACKAGE)
    assert [issue.message for issue in doubtful] == [
        "capsule demo 0.1.0 needs runtime 0.7, this is 2026.10.1"
    ]


CONTRACTS = "package astrid:contracts@1.0.0;\ninterface types {\n record tool-call { id: string }\n}\n"
ROWS = '[publish]\n"a.b" = "@unicity-astrid/wit/types/tool-cal"\n[subscribe]\n"c.d" = { wit = "opaque" }\n'


def test_wit_references_are_resolved_with_their_places() -> None:
    issues = reference_warnings(source(HEAD + ROWS), CONTRACTS)
    assert [(issue.file, issue.line) for issue in issues] == [("Capsule.toml", 5)]
    assert "tool-call" in (issues[0].hint or "")
    assert reference_warnings(source(HEAD + ROWS.replace("tool-cal", "tool-call")), CONTRACTS) == ()


def test_without_contracts_nothing_can_be_resolved() -> None:
    assert reference_warnings(source(HEAD + ROWS), None) == ()


def test_what_the_manifest_names(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    text = (
        HEAD
        + '[[command]]\nname = "/deploy"\nfile = "commands/deploy.toml"\n'
        + '[[context_file]]\nname = "c"\nfile = "AGENTS.md"\n'
        + '[[context_file]]\nname = "d"\nfile = "AGENTS.md"\n'
        + '[capabilities]\nhost_process = ["node", "servers", "bin/tool", "/opt/node"]\n'
        + "".join(
            f'[[mcp_server]]\nid = "{number}"\ntype = "stdio"\ncommand = "{command}"\n'
            for number, command in enumerate(("node", "servers", "bin/tool", "/opt/node"))
        )
    )
    assert named_files(source(text).manifest, tmp_path) == (
        "commands/deploy.toml",
        "AGENTS.md",
        "servers",
        "bin/tool",
    )


def test_strict_makes_one_error_of_all_warnings() -> None:
    assert strict_failure([]) is None
    one = Issue(message="is doubtful", file="Capsule.toml", line=3, hint="mend it")
    error = strict_failure([one])
    assert error is not None
    assert (error.code, error.message, error.hint) == (
        "strict-warnings",
        "Capsule.toml:3: is doubtful",
        "mend it",
    )
    both = strict_failure([one, Issue(message="too")])
    assert both is not None and (both.message, len(both.issues)) == ("--strict refuses 2 warnings", 2)
