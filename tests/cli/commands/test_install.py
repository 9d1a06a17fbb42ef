"""`aos capsule install`, `list`, `show`, `remove` on a real home; only the activator is a fake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aos_cli.install import journey
from aos_cli.install.activation import Activated
from aos_runtime.errors import Unavailable
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store.commit import change_env
from aos_runtime.store.env import EnvChanges, read_env
from aos_runtime.store.installed import list_names
from aos_runtime.store.keys import load_runtime_seed
from aos_runtime.store.layout import open_home
from aos_runtime.store.secrets import read_secret
from aos_runtime.store.stage import Stage
from tests.cli.conftest import Ended, RunAos
from tests.support.capsules import make_archive, write_capsule

NET = '\n[capabilities]\nnet = ["api.example.com"]\n'
ENV = '\n[env]\nregion = { type = "text" }\nkey = { type = "secret" }\n'
DEMO = CapsuleName("demo")


@pytest.fixture(autouse=True)
def activations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Stand in the test's folder; activating is noted, not done."""
    seen: list[str] = []

    def activate(stage: Stage, environ: object, questions: object) -> Activated:
        seen.append(f"{stage.name} {stage.manifest.version}")
        return Activated(hook="skipped", by_daemon=False)

    monkeypatch.setattr(journey, "activate", activate)
    monkeypatch.chdir(tmp_path)
    return seen


@pytest.fixture
def seed(home: Home) -> bytes:
    """The signing key of this home, so that what it signs counts as built here."""
    open_home(home, create=True)
    return load_runtime_seed(home, create=True)


def signed(seed: bytes, name: str = "demo", version: str = "0.1.0", extra: str = "") -> str:
    path = write_capsule(
        Path.cwd() / f"{name}-{version}.capsule", make_archive(name, version, extra=extra, seed=seed)
    )
    return path.name


def unsigned(name: str = "demo", version: str = "0.1.0", extra: str = "") -> str:
    path = write_capsule(Path.cwd() / f"{name}-{version}.capsule", make_archive(name, version, extra=extra))
    return path.name


def installed(home: Home, principal: str = "default") -> list[str]:
    return list(list_names(home, PrincipalName(principal)))


def test_what_was_built_here_and_asks_nothing_is_silent(
    run_aos: RunAos, home: Home, seed: bytes, activations: list[str]
) -> None:
    ended = run_aos("capsule", "install", signed(seed))
    assert (ended.status, ended.out, ended.err) == (
        0,
        "",
        "Activating demo 0.1.0 ...\n✓ Installed demo 0.1.0.\n",
    )
    assert (installed(home), activations) == (["demo"], ["demo 0.1.0"])


def test_what_was_built_here_but_asks_for_more_needs_a_yes(run_aos: RunAos, home: Home, seed: bytes) -> None:
    archive = signed(seed, extra=NET)
    refused = run_aos("capsule", "install", archive)
    assert (refused.status, refused.out) == (1, "")
    assert "It asks for:\n  - " in refused.err
    assert "    Scope: api.example.com\n" in refused.err
    assert "error: capsule `demo` needs an approval, because it asks for more than it holds\n" in refused.err
    assert installed(home) == []
    assert run_aos("capsule", "install", archive, "-y").status == 0
    again = run_aos("capsule", "install", archive)
    assert (again.status, again.err) == (0, "Activating demo 0.1.0 ...\n✓ Installed demo 0.1.0 again.\n")


def test_what_is_asked_for_cannot_pose_as_our_words(run_aos: RunAos) -> None:
    """Enough spaces would wrap the line, and a comma would pose as the end of an entry."""
    spaces = " " * 200
    entries = f"""["a.org{spaces}Signed by: you", "b, c", 'd", "e']"""
    refused = run_aos("capsule", "install", unsigned(extra=f"\n[capabilities]\nnet = {entries}\n"))
    escaped = " " + "\\x20" * 199
    assert f"""    Scope: "a.org{escaped}Signed by: you", "b, c", "d\\", \\"e"\n""" in refused.err


def test_a_secret_on_the_command_line_is_taken_with_a_warning(run_aos: RunAos, seed: bytes) -> None:
    archive = signed(seed, extra='\n[env.TOKEN]\ntype = "secret"\n')
    ended = run_aos("capsule", "install", archive, "--var", "TOKEN=hush")
    assert (ended.status, ended.out) == (0, "")
    assert "TOKEN is a secret, and other users of this machine can read a command line" in ended.err
    assert "set AOS_VAR_TOKEN instead" in ended.err
    assert "hush" not in ended.err


def test_what_is_unsigned_needs_an_approval_that_yes_is_not(run_aos: RunAos, home: Home) -> None:
    archive = unsigned()
    plain = run_aos("capsule", "install", archive)
    assert (plain.status, plain.err.splitlines()[-2]) == (
        1,
        "error: capsule `demo` needs an approval, because it is unsigned",
    )
    yes = run_aos("capsule", "install", archive, "--yes")
    assert "(`--yes` alone does not approve it)" in yes.err
    assert installed(home) == []
    assert run_aos("capsule", "install", archive, "--approve-untrusted").status == 0
    assert installed(home) == ["demo"]


def test_a_refusal_is_a_document_in_json_mode(run_aos: RunAos) -> None:
    ended = run_aos("capsule", "install", unsigned(extra=NET), "--json", "-q")
    assert (ended.status, ended.out) == (1, "")
    assert ended.error["code"] == "approval-needed"
    assert ended.error["context"]["capabilities"]["net"] == ["api.example.com"]


def test_manifest_text_cannot_paint_the_question(run_aos: RunAos) -> None:
    hostile = '\n[capabilities]\nnet = ["a\\u001b[2J\\u001b[1;1HInstall? yes"]\n'
    ended = run_aos("capsule", "install", unsigned(extra=hostile))
    assert ended.status == 1
    assert "\x1b" not in ended.err


def test_the_record_has_the_published_keys(run_aos: RunAos, seed: bytes) -> None:
    first = run_aos("capsule", "install", signed(seed), "--json").json
    second = run_aos("capsule", "install", signed(seed, version="0.2.0"), "--json").json
    assert {
        "target_dir",
        "phase",
        "installed_version",
        "previous_version",
        "wasm_hash",
        "env_path",
        "env_needs_prompt",
        "missing_imports",
        "export_conflicts",
    } <= set(first)
    assert (first["phase"], first["previous_version"], first["operation"]) == ("install", None, "install")
    assert (second["phase"], second["previous_version"], second["installed_version"]) == (
        "upgrade",
        "0.1.0",
        "0.2.0",
    )


def test_what_is_imported_from_nobody_is_noted(run_aos: RunAos, seed: bytes) -> None:
    taker = signed(seed, name="taker", extra='\n[imports]\n"acme:notes" = "^1.0"\n')
    ended = run_aos("capsule", "install", taker)
    assert ended.err.splitlines()[-1] == (
        "Nothing that is installed exports what it imports: acme:notes ^1.0"
    )
    record = run_aos("capsule", "install", taker, "--json").json
    assert record["missing_imports"] == [{"namespace": "acme", "interface": "notes", "requirement": "^1.0"}]


def test_a_failed_activation_leaves_the_old_version(
    run_aos: RunAos, home: Home, seed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_aos("capsule", "install", signed(seed))

    def fail(*_arguments: object) -> Activated:
        raise Unavailable("activation-failed", "the install hook trapped", hint="ask its author")

    monkeypatch.setattr(journey, "activate", fail)
    ended = run_aos("capsule", "install", signed(seed, version="0.2.0"), "-q")
    assert (ended.status, ended.err) == (1, "error: the install hook trapped\nhint: ask its author\n")
    assert run_aos("capsule", "list", "--json").json[0]["version"] == "0.1.0"
    assert list(home.staging.iterdir()) == []


def test_ctrl_c_drops_the_stage(
    run_aos: RunAos, home: Home, seed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> Activated:
        raise KeyboardInterrupt

    monkeypatch.setattr(journey, "activate", interrupt)
    assert run_aos("capsule", "install", signed(seed)).status == 130
    assert (installed(home), list(home.staging.iterdir())) == ([], [])


def test_ins_15_and_20_several_sources_go_on_over_a_bad_one(run_aos: RunAos, home: Home, seed: bytes) -> None:
    names = [signed(seed, name="good"), "broken.capsule", signed(seed, name="other"), "missing.capsule"]
    write_capsule(Path("broken.capsule"), b"no archive")
    ended = run_aos("capsule", "install", *names)
    assert ended.status == 1
    assert ended.err.splitlines()[-1] == "Installed 2 of 4."
    assert installed(home) == ["good", "other"]
    document = run_aos("capsule", "install", *names, "--json").json
    assert [item["name"] for item in document["installed"]] == ["good", "other"]
    assert [Path(item["source"]).name for item in document["failed"]] == ["broken.capsule", "missing.capsule"]
    assert document["total"] == 4


def test_ins_15_a_folder_is_all_its_archives(
    run_aos: RunAos, home: Home, seed: bytes, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        write_capsule(tmp_path / "dist" / f"{name}.capsule", make_archive(name, seed=seed))
    assert run_aos("capsule", "install", "dist").err.splitlines()[-1] == "Installed 3 of 3."
    assert installed(home) == ["a", "b", "c"]


def test_ins_24_the_recorded_source_is_absolute(run_aos: RunAos, seed: bytes, tmp_path: Path) -> None:
    run_aos("capsule", "install", f"./{signed(seed)}")
    assert run_aos("capsule", "list", "--json").json[0]["source"] == str(tmp_path / "demo-0.1.0.capsule")


def test_ins_11_missing_values_end_at_once_with_what_supplies_them(
    run_aos: RunAos, home: Home, seed: bytes
) -> None:
    ended = run_aos("capsule", "install", signed(seed, extra=ENV))
    assert (ended.status, ended.err) == (
        1,
        "error: the capsule needs values that were not given\n"
        "  key (secret); set AOS_VAR_KEY\n"
        "  region; pass --var region=... or set AOS_VAR_REGION\n"
        "hint: give each with what stands behind it, or run it in a terminal to be asked\n",
    )
    assert installed(home) == []


def test_values_are_stored_and_a_later_var_changes_one(
    run_aos: RunAos, home: Home, seed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOS_VAR_KEY", "s3cret")
    archive = signed(seed, extra=ENV)
    first = run_aos("capsule", "install", archive, "--var", "region=eu", "--json")
    assert (first.json["env_set"], "s3cret" in first.out + first.err) == (["key", "region"], False)
    monkeypatch.delenv("AOS_VAR_KEY")
    assert run_aos("capsule", "install", archive, "--var", "region=us").status == 0
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO)["region"] == "us"
    assert read_secret(home, DEFAULT_PRINCIPAL, DEMO, "key") == "s3cret"  # type: ignore[arg-type]
    shown = run_aos("capsule", "show", "demo", "--json").json["env"]
    assert shown == {"region": "us", "key": "(secret, set)"}


def test_ins_08_a_key_that_is_gone_is_reported_and_kept(run_aos: RunAos, home: Home, seed: bytes) -> None:
    run_aos("capsule", "install", signed(seed, extra='\n[env]\nold = { type = "text" }\n'), "--var", "old=1")
    ended = run_aos("capsule", "install", signed(seed, version="0.2.0"))
    assert ended.err.splitlines()[-1] == "Values of keys that this version no longer has are kept: old"
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {"old": "1"}


def test_ins_09_remove_keeps_values_and_purge_says_what_it_deleted(
    run_aos: RunAos, home: Home, seed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOS_VAR_KEY", "k")
    run_aos("capsule", "install", signed(seed, extra=ENV), "--var", "region=eu")
    kept = run_aos("capsule", "remove", "demo")
    assert (kept.status, kept.err) == (
        0,
        "✓ Removed demo 0.1.0.\nIts configuration, secrets and data are kept; `--purge` deletes them.\n",
    )
    monkeypatch.delenv("AOS_VAR_KEY")
    assert run_aos("capsule", "install", signed(seed, extra=ENV)).status == 0
    purged = run_aos("capsule", "remove", "demo", "--purge")
    assert purged.err == "✓ Removed demo 0.1.0.\nDeleted: env region; secrets key.\n"
    assert run_aos("capsule", "install", signed(seed, extra=ENV)).status == 1


def test_removing_what_is_not_there_names_the_nearest(run_aos: RunAos, seed: bytes) -> None:
    run_aos("capsule", "install", signed(seed))
    ended = run_aos("capsule", "remove", "dmo")
    assert (ended.status, ended.err) == (
        1,
        "error: capsule `dmo` is not installed for principal `default`\nhint: did you mean `demo`?\n",
    )


def test_a_capsule_that_another_needs_stays_unless_forced(run_aos: RunAos, home: Home, seed: bytes) -> None:
    run_aos("capsule", "install", signed(seed, name="giver", extra='\n[exports]\n"acme:notes" = "1.0.0"\n'))
    run_aos("capsule", "install", signed(seed, name="taker", extra='\n[imports]\n"acme:notes" = "^1.0"\n'))
    refused = run_aos("capsule", "remove", "giver")
    assert (refused.status, "taker" in refused.err) == (1, True)
    assert run_aos("capsule", "remove", "giver", "--force").status == 0
    assert installed(home) == ["taker"]


def test_lst_09_principals_have_sets_of_their_own(
    run_aos: RunAos, seed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_aos("--principal", "bob", "capsule", "install", signed(seed, name="of-bob"))
    run_aos("capsule", "install", signed(seed, name="of-all"))

    def names(ended: Ended) -> list[str]:
        return [row["name"] for row in ended.json]

    assert names(run_aos("--principal", "bob", "capsule", "list", "--json")) == ["of-bob"]
    assert names(run_aos("capsule", "list", "--json")) == ["of-all"]
    monkeypatch.setenv("AOS_PRINCIPAL", "bob")
    assert names(run_aos("capsule", "list", "--json")) == ["of-bob"]


def test_lst_01_and_05_strays_and_damage_do_not_spoil_the_list(
    run_aos: RunAos, home: Home, seed: bytes
) -> None:
    for name in ("good", "torn"):
        run_aos("capsule", "install", signed(seed, name=name))
    folder = home.installed(DEFAULT_PRINCIPAL)
    (folder / "stray").mkdir()
    (folder / ".DS_Store").write_bytes(b"x")
    torn = (folder / "torn").resolve() / "meta.json"
    torn.write_bytes(torn.read_bytes()[:20])
    ended = run_aos("capsule", "list", "--json")
    assert ended.status == 0
    states = {row["name"]: row["state"] for row in json.loads(ended.out)}
    assert states == {"good": "installed", "stray": "broken", "torn": "broken"}
    assert ended.err == '{"warning": {"message": "2 capsules cannot be read"}}\n'
    listed = run_aos("capsule", "list")
    assert listed.err.splitlines()[0] == "warning: 2 capsules cannot be read"
    table = listed.out.splitlines()
    assert table[0].split() == ["CAPSULE", "VERSION", "ORIGIN", "DESCRIPTION"]
    assert table[1].split() == ["good", "0.1.0", "built", "here"]
    assert table[2].split()[:3] == ["stray", "—", "broken"]


def test_the_table_of_one_capsule(run_aos: RunAos, seed: bytes) -> None:
    run_aos("capsule", "install", signed(seed, name="wide"))
    assert run_aos("capsule", "list").out == (
        "CAPSULE  VERSION  ORIGIN      DESCRIPTION\nwide     0.1.0    built here\n"
    )


def test_show_compares_with_what_was_approved(run_aos: RunAos, home: Home, seed: bytes) -> None:
    run_aos("capsule", "install", signed(seed))
    whole = run_aos("capsule", "show", "demo", "--json")
    assert (whole.status, whole.json["intact"], whole.json["problem"]) == (0, True, None)
    note = home.capsule(DEFAULT_PRINCIPAL, DEMO).resolve() / "assets" / "note.txt"
    note.chmod(0o600)
    note.write_bytes(b"forged\n")
    forged = run_aos("capsule", "show", "demo", "--json")
    assert (forged.status, forged.json["intact"]) == (1, False)
    assert "assets/note.txt" in forged.json["problem"]


def test_ins_12_an_idle_pipe_on_stdin_is_never_read(
    run_aos: RunAos, seed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as stdin, os.fdopen(write_end, "w"):
        monkeypatch.setattr("sys.stdin", stdin)
        ended = run_aos("capsule", "install", signed(seed, extra=ENV))
    assert (ended.status, "set AOS_VAR_KEY" in ended.err) == (1, True)


def test_change_env_is_seen_by_show(run_aos: RunAos, home: Home, seed: bytes) -> None:
    run_aos("capsule", "install", signed(seed, extra='\n[env]\nregion = { type = "text", default = "us" }\n'))
    assert run_aos("capsule", "show", "demo", "--json").json["env"] == {"region": "us (default)"}
    change_env(home, DEFAULT_PRINCIPAL, DEMO, EnvChanges(values={"region": "eu"}))  # type: ignore[dict-item]
    assert run_aos("capsule", "show", "demo", "--json").json["env"] == {"region": "eu"}
