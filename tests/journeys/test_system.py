"""The first-party `system` tools through a real daemon: what is installed and which interfaces there are."""

from __future__ import annotations

import json
import tarfile
from typing import Any

import pytest

from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store.bundled import BUNDLED_FOLDER, read_catalogue
from tests.support.capsules import make_archive, write_capsule
from tests.support.installation import Aos

pytestmark = pytest.mark.journey

NOTES = b"""package acme:notes@1.0.0;

/// Short texts that somebody keeps.
interface notes {
  record note { text: string }
}
"""


def ask(aos: Aos, tool: str, **arguments: str) -> Any:
    words = [word for key, value in arguments.items() for word in ("--arg", f"{key}={value}")]
    return json.loads(aos.run("tool", "call", tool, *words).out)


def fail(aos: Aos, tool: str, **arguments: str) -> str:
    words = [word for key, value in arguments.items() for word in ("--arg", f"{key}={value}")]
    ended = aos.run("tool", "call", tool, *words, status=1)
    return next(line for line in ended.err.splitlines() if line.startswith("error: "))


def some_component() -> bytes:
    """A component that runs: that of the bundled `hello`."""
    with tarfile.open(BUNDLED_FOLDER / "hello.capsule") as archive:
        file = archive.extractfile("hello.wasm")
        assert file is not None
        return file.read()


def test_system_tells_what_is_installed_and_which_interfaces_there_are(aos: Aos) -> None:
    told = aos.run("init", "-y", "--json").json
    assert "system" in [one["name"] for one in told["installed"]]
    acme = write_capsule(
        aos.root / "acme.capsule", make_archive("acme", wasm=some_component(), files={"wit/notes.wit": NOTES})
    )
    aos.run("capsule", "install", str(acme), "--approve-untrusted")
    rows = {row["name"]: row for row in aos.run("tool", "list", "--json").json if row["capsule"] == "system"}
    names = {"list_capsules", "inspect_capsule", "list_interfaces", "read_interface", "system_status"}
    assert set(rows) == names
    assert not any(row["mutable"] for row in rows.values()) and all(
        row["description"] for row in rows.values()
    )

    listed = {one["name"]: one for one in ask(aos, "list_capsules")}
    assert set(listed) == {row.name for row in read_catalogue()} | {"acme"}
    assert "read_file" in listed["fs"]["tools"] and listed["fs"]["capabilities"] == ["fs_read", "fs_write"]
    assert listed["hello"]["capabilities"] == []

    fs = ask(aos, "inspect_capsule", name="fs")
    assert fs["capabilities"]["fs_write"] == ["cwd://"] and fs["version"] == "0.1.0"
    assert "deps/astrid-contracts/astrid-contracts.wit" in fs["interfaces"] and len(fs["wasm_hash"]) == 64
    assert "list_capsules" in ask(aos, "inspect_capsule", name="system")["tools"]
    assert 'no capsule "../fs"; there are acme, fs' in fail(aos, "inspect_capsule", name="../fs")

    files = {one["file"]: one for one in ask(aos, "list_interfaces")}
    assert set(files) == {"astrid-contracts.wit", "demo.wit", "notes.wit"}
    assert {"tool", "types", "llm"} <= set(files["astrid-contracts.wit"]["interfaces"])
    assert (files["notes.wit"]["package"], files["notes.wit"]["interfaces"]) == (
        "acme:notes@1.0.0",
        ["notes"],
    )
    tool = ask(aos, "read_interface", name="tool")
    assert tool["file"] == "astrid-contracts.wit" and tool["text"].startswith("///")
    assert "describe-request" in tool["text"] and "interface types" not in tool["text"]
    assert ask(aos, "read_interface", name="notes.wit")["text"].encode() == NOTES
    assert "/// Short texts" in ask(aos, "read_interface", name="acme:notes/notes")["text"]
    assert "there are" in fail(aos, "read_interface", name="../../etc/profiles/default.toml")

    status = ask(aos, "system_status")
    assert (status["principal"], status["unreadable"]) == ("default", [])
    assert status["capsules"] == len(listed) and status["interfaces"] > 10
    assert status["capabilities"]["fs_write"] == ["fs"]

    aos.run("capsule", "remove", "acme")
    assert {one["file"] for one in ask(aos, "list_interfaces")} == {"astrid-contracts.wit"}


def test_a_home_of_an_older_aos_shows_its_interfaces_after_the_next_start(aos: Aos) -> None:
    aos.run("init", "-y")
    folder = aos.home.shown_wit(DEFAULT_PRINCIPAL)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert "astrid-contracts.wit" in [one["file"] for one in ask(aos, "list_interfaces")]
    (aos.home.capsule(DEFAULT_PRINCIPAL, CapsuleName("hello")) / "Capsule.toml").write_text("[broken")
    assert ask(aos, "system_status")["unreadable"] == ["hello"]
    assert "is no TOML" in fail(aos, "inspect_capsule", name="hello")
