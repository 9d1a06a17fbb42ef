"""A secret is read by the capsule that it belongs to and found nowhere else: everything is searched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, EnvKey
from tests.support.installation import Aos, wait_until
from tests.support.projects import build_project

pytestmark = pytest.mark.journey

MARKER = "sk-marker-7f3a9c2e51"
LATER = "sk-marker-of-another-length"
KEEPER = CapsuleName("keeper")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Aos]:
    installation = Aos(root=tmp_path, extra={"AOS_VAR_API_KEY": MARKER})
    installation.folder.mkdir()
    yield installation
    installation.close()


def finds(text: str | bytes) -> bool:
    data = text.encode() if isinstance(text, str) else text
    return any(secret.encode() in data for secret in (MARKER, LATER))


def test_a_secret_is_in_its_file_and_nowhere_else(kept: Aos) -> None:
    told: list[str] = []

    def run(*arguments: str, status: int = 0) -> str:
        ended = kept.run(*arguments, status=status)
        told.extend((ended.out, ended.err))
        return ended.out

    run("capsule", "install", str(build_project("keeper")), "--approve-untrusted", "--json")
    secret = kept.home.secret(DEFAULT_PRINCIPAL, KEEPER, EnvKey("API_KEY"))
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == (MARKER, 0o600)
    run("start")
    assert run("tool", "call", "measure") == f"{len(MARKER)} Bern\n"
    secret.write_text(LATER)
    assert run("tool", "call", "measure") == f"{len(LATER)} Bern\n", "read at each call"
    run("tool", "call", "fail", status=1)
    run("tool", "call", "crash", status=1)
    traced = json.loads(run("tool", "call", "measure", "--json"))
    run("trace", traced["call_id"])
    for arguments in (
        ("capsule", "list", "--json"),
        ("capsule", "show", "keeper", "--json"),
        ("capsule", "config", "keeper", "--show"),
        ("capsule", "config", "keeper", "--show", "--json"),
        ("tool", "list", "--json"),
        ("tool", "show", "measure", "--json"),
        ("status", "--json"),
        ("ps", "--json"),
        ("logs", "--all"),
        ("logs", "keeper", "--json"),
        ("audit", "tail", "-n", "500", "--json"),
        ("agent", "show", "default", "--json"),
        ("version", "-v"),
    ):
        run(*arguments)
    wait_until(lambda: "host_call_run" in kept.run("audit", "tail", "-n", "500", "--json").out, "audited")
    run("stop")
    assert not any(finds(text) for text in told)
    searched = [path for path in kept.home.root.rglob("*") if path.is_file() and path != secret]
    assert kept.home.env_file(DEFAULT_PRINCIPAL, KEEPER) in searched
    assert {"state.db", "audit.db", "keeper.log", "_daemon.log"} <= {path.name for path in searched}
    assert [path for path in searched if finds(path.read_bytes())] == []
    stored = json.loads(kept.home.env_file(DEFAULT_PRINCIPAL, KEEPER).read_text())
    assert stored["API_KEY"] == ""
