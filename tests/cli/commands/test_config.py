"""`aos capsule config`: what is shown of values, what a change does, and that a secret is never told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aos_cli.install import journey
from aos_cli.install.activation import Activated
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, EnvKey
from aos_runtime.store.env import read_env
from aos_runtime.store.secrets import read_secret
from tests.cli.conftest import RunAos
from tests.support.capsules import make_archive, write_capsule

DEMO = CapsuleName("demo")
MARKER = "sk-never-shown"
ENV = """
[env]
region = { type = "text", default = "eu" }
speed = { type = "select", enum_values = ["slow", "fast"] }
key = { type = "secret" }
"""


@pytest.fixture(autouse=True)
def installed(run_aos: RunAos, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        journey, "activate", lambda stage, environ, questions: Activated(hook="skipped", by_daemon=False)
    )
    archive = write_capsule(tmp_path / "demo.capsule", make_archive("demo", "0.1.0", extra=ENV))
    monkeypatch.setenv("AOS_VAR_KEY", MARKER)
    ended = run_aos("capsule", "install", str(archive), "--approve-untrusted", "-y", "--var", "speed=slow")
    assert ended.status == 0, ended.err
    monkeypatch.delenv("AOS_VAR_KEY")


def rows(run_aos: RunAos) -> dict[str, object]:
    document = json.loads(run_aos("capsule", "config", "demo", "--json").out)
    return {row["key"]: (row["value"], row["source"]) for row in document["env"]}


def test_values_are_shown_with_where_they_come_from(run_aos: RunAos) -> None:
    for words in ((), ("--show",)):
        ended = run_aos("capsule", "config", "demo", *words)
        assert [line.split() for line in ended.out.splitlines()] == [
            ["KEY", "TYPE", "VALUE", "FROM"],
            ["region", "text", "eu", "default"],
            ["speed", "select", "slow", "stored"],
            ["key", "secret", "(secret)", "stored"],
        ]
    ended = run_aos("capsule", "config", "demo", "--show", "--json")
    assert MARKER not in ended.out + ended.err
    assert json.loads(ended.out) == {
        "name": "demo",
        "version": "0.1.0",
        "principal": "default",
        "env": [
            {"key": "region", "type": "text", "secret": False, "value": "eu", "source": "default"},
            {"key": "speed", "type": "select", "secret": False, "value": "slow", "source": "stored"},
            {"key": "key", "type": "secret", "secret": True, "value": None, "source": "stored"},
        ],
        "changed": [],
    }


def test_values_are_set_and_forgotten(run_aos: RunAos, home: Home) -> None:
    ended = run_aos("capsule", "config", "demo", "--set", "region=us", "--set", "speed=fast")
    assert (ended.status, ended.out, ended.err) == (0, "", "✓ Changed the values of demo.\n")
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {"key": "", "region": "us", "speed": "fast"}
    ended = run_aos("capsule", "config", "demo", "--unset", "region", "--unset", "key", "--json")
    assert json.loads(ended.out)["changed"] == ["key", "region"]
    assert rows(run_aos) == {
        "key": (None, "missing"),
        "region": ("eu", "default"),
        "speed": ("fast", "stored"),
    }
    assert read_secret(home, DEFAULT_PRINCIPAL, DEMO, EnvKey("key")) is None


def test_a_secret_comes_from_the_environment_and_goes_to_its_file(
    run_aos: RunAos, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOS_VAR_KEY", "another")
    assert run_aos("capsule", "config", "demo", "--set", "key").status == 0
    assert read_secret(home, DEFAULT_PRINCIPAL, DEMO, EnvKey("key")) == "another"
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO)["key"] == ""


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--set", "regoin=us"), "env-undeclared", "regoin is not declared by the capsule"),
        (("--unset", "nothing"), "env-undeclared", "nothing is not declared by the capsule"),
        (("--set", "speed=warp"), "env-value", "speed: 'warp' is not one of slow, fast"),
        (("--set", "key"), "env-missing", "key (secret); set AOS_VAR_KEY"),
    ],
)
def test_what_cannot_be_set_changes_nothing(
    run_aos: RunAos, home: Home, words: tuple[str, ...], code: str, told: str
) -> None:
    before = read_env(home, DEFAULT_PRINCIPAL, DEMO)
    ended = run_aos("capsule", "config", "demo", *words)
    assert (ended.status, told in ended.err) == (1, True), ended.err
    document = json.loads(run_aos("capsule", "config", "demo", *words, "--json").err)
    assert document["error"]["code"] == code
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == before


def test_a_capsule_that_is_not_there_is_told_with_near_names(run_aos: RunAos) -> None:
    ended = run_aos("capsule", "config", "demmo")
    assert (ended.status, "capsule `demmo` is not installed" in ended.err) == (1, True)
