"""store.stage: everything is checked on staged bytes, and a refusal writes nothing outside the staging
folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.errors import AosError, Conflict, Corrupt, InvalidInput, LimitExceeded, NotFound
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, EnvKey, PrincipalName
from aos_runtime.store import stage as module
from aos_runtime.store.bundled import BundledCapsule
from aos_runtime.store.env import NO_CHANGES, EnvChanges
from aos_runtime.store.installed import read_installed
from aos_runtime.store.keys import load_runtime_seed, public_hex
from aos_runtime.store.stage import Expected, Phase, Provenances, Stage, open_stage, stage_source
from tests.runtime.store.conftest import Install, names
from tests.support.capsules import COMPONENT, make_archive, manifest_text, write_capsule

DEMO = CapsuleName("demo")
OTHER_SEED = bytes(range(32))


def _stage(home: Home, tmp_path: Path, now: datetime, data: bytes, **options: object) -> Stage:
    source = write_capsule(tmp_path / "source.capsule", data)
    options = {"catalogue": (), **options}
    return stage_source(home, DEFAULT_PRINCIPAL, source, now=now, **options)  # type: ignore[arg-type]  # as given


def _written(home: Home) -> list[str]:
    """What lies in the home apart from keys, locks and empty folders."""
    return sorted(
        str(path.relative_to(home.state))
        for path in home.state.rglob("*")
        if path.is_file() and path.parent.name not in ("lock", "keys") and path != home.layout_file
    )


def test_a_stage_shows_what_the_archive_holds(home: Home, tmp_path: Path, now: datetime) -> None:
    data = make_archive(seed=OTHER_SEED, extra='\n[capabilities]\nnet = ["x.org"]\n')
    with _stage(home, tmp_path, now, data) as stage:
        assert (stage.name, stage.manifest.version, stage.phase) == ("demo", "0.1.0", Phase.INSTALL)
        assert stage.signer == public_hex(OTHER_SEED)
        assert stage.provenance_class is Provenances.FOREIGN
        assert stage.asks.net == ("x.org",)
        assert stage.wasm_digest == bytes_digest(COMPONENT)
        assert stage.read_wasm() == COMPONENT
        assert stage.previous is None
        assert stage.needs_consent
        assert stage.folder.stat().st_mode & 0o777 == 0o700
        stage.verify()
    assert not stage.folder.exists()
    assert _written(home) == []


@pytest.mark.parametrize("signer", ["own", "other", None])
def test_the_origin_decides_whether_a_yes_is_needed(
    home: Home, tmp_path: Path, now: datetime, signer: str | None
) -> None:
    own = load_runtime_seed(home, create=True)
    seed = {"own": own, "other": OTHER_SEED, None: None}[signer]
    with _stage(home, tmp_path, now, make_archive(seed=seed)) as stage:
        expected = {"own": Provenances.LOCAL, "other": Provenances.FOREIGN, None: Provenances.UNSIGNED}
        assert stage.provenance_class is expected[signer]
        assert stage.needs_consent == (signer != "own")


def test_own_builds_that_ask_for_something_need_a_yes(home: Home, tmp_path: Path, now: datetime) -> None:
    seed = load_runtime_seed(home, create=True)
    data = make_archive(seed=seed, extra='\n[capabilities]\nfs_read = ["home://"]\n')
    with _stage(home, tmp_path, now, data) as stage:
        assert stage.needs_consent
        assert stage.asks.fs_read == ("home://",)


def test_man_04_unknown_capabilities_and_mcp_servers_are_shown_as_requests(
    home: Home, tmp_path: Path, now: datetime
) -> None:
    extra = (
        '\n[capabilities]\nteleport = true\nhost_process = ["npx"]\n'
        '\n[[mcp_server]]\nid = "files"\ntype = "stdio"\ncommand = "npx"\nargs = ["-y", "files"]\n'
    )
    seed = load_runtime_seed(home, create=True)
    with _stage(home, tmp_path, now, make_archive(seed=seed, extra=extra)) as stage:
        assert stage.requests == (
            "the capability `teleport`, which this aos does not know",
            "run the MCP server `files`: npx -y files",
        )
        assert stage.needs_consent
        assert stage.asks.host_process == ("npx",)


def test_a_server_whose_words_are_split_otherwise_is_another_request(
    home: Home, tmp_path: Path, now: datetime, install: Install
) -> None:
    """What was agreed to is compared as text, so that text must tell one command from another."""
    extra = '[capabilities]\nhost_process = ["sh"]\n[[mcp_server]]\nid = "a"\ncommand = "sh"\nargs = %s\n'
    install(extra="\n" + extra % '["-c", "ls", "x; rm y"]')
    data = make_archive(version="0.2.0", extra="\n" + extra % '["-c", "ls x; rm y"]')
    with _stage(home, tmp_path, now, data) as stage:
        assert stage.requests == ("run the MCP server `a`: sh -c 'ls x; rm y'",)


def test_a_receipt_with_a_damaged_version_does_not_stand_in_the_way_of_repair(
    home: Home, tmp_path: Path, now: datetime, install: Install
) -> None:
    receipt = install().receipt
    path = home.receipt(DEFAULT_PRINCIPAL, DEMO, receipt.content_digest)
    path.write_text(path.read_text().replace('"0.1.0"', '"none"'))
    with _stage(home, tmp_path, now, make_archive()) as stage:
        assert (stage.previous, stage.phase) == (None, Phase.INSTALL)


def test_only_what_is_beyond_the_receipt_is_asked(
    home: Home, tmp_path: Path, now: datetime, install: Install
) -> None:
    install(extra='\n[capabilities]\nnet = ["x.org"]\nteleport = true\n')
    data = make_archive(
        version="0.2.0", extra='\n[capabilities]\nnet = ["x.org", "y.org"]\nteleport = true\n'
    )
    with _stage(home, tmp_path, now, data) as stage:
        assert (stage.asks.net, stage.requests, stage.phase) == (("y.org",), (), Phase.UPGRADE)


def test_a_bundled_capsule_is_known_by_its_catalogue_and_asks_like_any_other(
    home: Home, tmp_path: Path, now: datetime
) -> None:
    data = make_archive(extra='\n[capabilities]\nnet = ["*"]\nteleport = true\n')
    with _stage(home, tmp_path, now, data) as stage:
        row = BundledCapsule(name=DEMO, version="0.1.0", path=tmp_path, content_digest=stage.content_digest)
    with _stage(home, tmp_path, now, data, catalogue=(row,)) as stage:
        assert stage.provenance_class is Provenances.BUNDLED
        assert (stage.asks.net, stage.requests, stage.needs_consent) == (("*",), (), True)
    plain = make_archive(extra="\n[capabilities]\nteleport = true\n")
    with _stage(home, tmp_path, now, plain) as stage:
        row = replace(row, content_digest=stage.content_digest)
    with _stage(home, tmp_path, now, plain, catalogue=(row,)) as stage:
        assert not stage.needs_consent
    changed = make_archive(extra='\n[capabilities]\nnet = ["*", "a"]\n')
    with _stage(home, tmp_path, now, changed, catalogue=(row,)) as stage:
        assert stage.provenance_class is Provenances.UNSIGNED


@pytest.mark.parametrize(
    ("installed", "staged", "phase"),
    [
        ("0.1.0", "0.1.0", Phase.REINSTALL),
        ("0.1.0", "0.2.0", Phase.UPGRADE),
        ("0.10.0", "0.9.0", Phase.DOWNGRADE),
        ("1.0.0-rc.1", "1.0.0", Phase.UPGRADE),
    ],
)
def test_ins_25_a_reinstall_is_neither_install_nor_upgrade(
    home: Home, tmp_path: Path, now: datetime, install: Install, installed: str, staged: str, phase: Phase
) -> None:
    install(version=installed)
    with _stage(home, tmp_path, now, make_archive(version=staged)) as stage:
        assert stage.phase is phase
        assert stage.previous is not None
        assert stage.previous.version == installed


def test_a_damaged_installed_version_holds_nothing(
    home: Home, tmp_path: Path, now: datetime, install: Install
) -> None:
    found = install(extra='\n[capabilities]\nnet = ["x.org"]\n')
    (found.generation / "Capsule.toml").write_bytes(b"")
    data = make_archive(extra='\n[capabilities]\nnet = ["x.org"]\n')
    with _stage(home, tmp_path, now, data) as stage:
        assert stage.previous is None
        assert stage.asks.net == ("x.org",)


def _bad_archives() -> dict[str, tuple[bytes, str]]:
    good = make_archive()
    sha = hashlib.sha256(b"another").hexdigest()
    hashed = '[[component]]\nid = "main"\nfile = "demo.wasm"\ntype = "executable"\n'
    with_hash = manifest_text().replace(hashed, f'{hashed}hash = "sha256:{sha}"\n').encode()
    return {
        "ins_27_component_missing": (make_archive(wasm=None), "component-missing"),
        "cmp_10_core_module": (make_archive(wasm=b"\0asm\x01\0\0\0"), "component-kind"),
        "cmp_10_empty": (make_archive(wasm=b""), "component-kind"),
        "cmp_10_text": (make_archive(wasm=b"(module)"), "component-kind"),
        "cmp_10_elf": (make_archive(wasm=b"\x7fELF" + bytes(60)), "component-kind"),
        "ins_27_garbage": (make_archive(wasm=bytes(range(1, 99))), "component-kind"),
        "hash_mismatch": (make_archive(files={"Capsule.toml": with_hash}), "component-hash"),
        "astrid_version": (
            make_archive(files={"Capsule.toml": _requiring(">=2999.1.0")}),
            "astrid-version-unsatisfied",
        ),
        "arc_12_truncated": (good[: len(good) * 6 // 10], "archive-damaged"),
        "arc_12_flipped": (
            good[: len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1 :],
            "",
        ),
        "arc_12_empty": (b"", ""),
    }


def _requiring(requirement: str) -> bytes:
    text = manifest_text()
    return text.replace(
        'version = "0.1.0"\n', f'version = "0.1.0"\nastrid-version = "{requirement}"\n', 1
    ).encode()


@pytest.mark.parametrize("case", sorted(_bad_archives()))
def test_a_bad_archive_is_refused_before_anything_is_written(
    home: Home, tmp_path: Path, now: datetime, install: Install, case: str
) -> None:
    install(version="0.0.1")
    before = _written(home)
    data, code = _bad_archives()[case]
    with pytest.raises(AosError) as caught:
        _stage(home, tmp_path, now, data)
    assert code in ("", caught.value.code)
    assert caught.value.hint
    assert _written(home) == before
    assert names(home.staging) == []
    assert read_installed(home, DEFAULT_PRINCIPAL, DEMO).version == "0.0.1"
    install(version="0.0.2")


def test_cmp_10_the_kind_is_said_in_words(home: Home, tmp_path: Path, now: datetime) -> None:
    words = {
        b"\0asm\x01\0\0\0": "`demo.wasm` is a core module, not a component; run `aos capsule build`",
        b"": "`demo.wasm` is empty",
        b"(module)": "`demo.wasm` is text, not a WebAssembly binary",
    }
    for wasm, message in words.items():
        with pytest.raises(InvalidInput) as caught:
            _stage(home, tmp_path, now, make_archive(wasm=wasm))
        assert caught.value.message == message


def test_a_matching_manifest_hash_passes(home: Home, tmp_path: Path, now: datetime) -> None:
    for promise in (f"sha256:{hashlib.sha256(COMPONENT).hexdigest()}", f"blake3:{bytes_digest(COMPONENT)}"):
        text = manifest_text().replace('type = "executable"\n', f'type = "executable"\nhash = "{promise}"\n')
        with _stage(home, tmp_path, now, make_archive(files={"Capsule.toml": text.encode()})) as stage:
            assert stage.wasm_digest == bytes_digest(COMPONENT)


def test_a_forged_signature_is_refused(home: Home, tmp_path: Path, now: datetime) -> None:
    from aos_runtime.capsule.archive import Member, write_archive
    from aos_runtime.capsule.provenance import PROVENANCE_FILE, render_provenance, sign_content

    digest = bytes_digest(b"another content")
    forged = render_provenance(sign_content(digest, OTHER_SEED))
    members = [
        Member(path="Capsule.toml", data=manifest_text().encode()),
        Member(path="demo.wasm", data=COMPONENT),
        Member(path=PROVENANCE_FILE, data=forged),
    ]
    with pytest.raises(Corrupt):
        _stage(home, tmp_path, now, write_archive(members))
    assert _written(home) == []


def test_ins_02_and_ins_23_an_archive_that_is_not_the_promised_one_is_refused(
    home: Home, tmp_path: Path, now: datetime
) -> None:
    promises = (
        Expected(version="0.1.1"),
        Expected(name=CapsuleName("other")),
        Expected(content_digest=bytes_digest(b"same manifest, other wasm")),
    )
    for expected in promises:
        with pytest.raises(InvalidInput) as caught:
            _stage(home, tmp_path, now, make_archive(), expected=expected)
        assert caught.value.code == "archive-identity"
    with pytest.raises(InvalidInput) as caught:
        _stage(home, tmp_path, now, make_archive(), expected=promises[0])
    assert caught.value.message == "the archive's version is 0.1.0, but 0.1.1 was asked for"
    with _stage(home, tmp_path, now, make_archive(), expected=Expected(name=DEMO, version="0.1.0")) as stage:
        assert stage.name == "demo"


def test_what_is_no_file_is_refused_in_words(home: Home, tmp_path: Path, now: datetime) -> None:
    os.mkfifo(tmp_path / "pipe")
    cases = {
        tmp_path / "none.capsule": (NotFound, "source-missing"),
        tmp_path: (InvalidInput, "source-not-a-file"),
        tmp_path / "pipe": (InvalidInput, "source-not-a-file"),
    }
    for source, (family, code) in cases.items():
        with pytest.raises(family) as caught:
            stage_source(home, DEFAULT_PRINCIPAL, source, now=now, catalogue=())
        assert isinstance(caught.value, AosError)
        assert caught.value.code == code


def test_a_source_over_the_packed_limit_is_refused(home: Home, tmp_path: Path, now: datetime) -> None:
    source = tmp_path / "huge.capsule"
    with source.open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)
    with pytest.raises(LimitExceeded) as caught:
        stage_source(home, DEFAULT_PRINCIPAL, source, now=now, catalogue=())
    assert caught.value.code == "source-too-large"


def test_the_source_is_read_once(home: Home, tmp_path: Path, now: datetime) -> None:
    with _stage(home, tmp_path, now, make_archive(version="0.1.0")) as stage:
        write_capsule(tmp_path / "source.capsule", make_archive(version="0.9.9"))
        assert open_stage(home, DEFAULT_PRINCIPAL, stage.id, catalogue=()).manifest.version == "0.1.0"


def test_ins_06_a_second_install_of_the_capsule_says_busy(home: Home, tmp_path: Path, now: datetime) -> None:
    with _stage(home, tmp_path, now, make_archive()):
        with pytest.raises(Conflict) as caught:
            _stage(home, tmp_path, now, make_archive(version="0.2.0"), wait_s=0.0)
        assert caught.value.message.startswith(f"busy: pid {os.getpid()}")
        with _stage(home, tmp_path, now, make_archive(name="other"), wait_s=0.0) as other:
            assert other.name == "other"
    with _stage(home, tmp_path, now, make_archive(), wait_s=0.0) as stage:
        assert stage.name == "demo"


def test_the_activator_sees_the_same_stage_and_leaves_it(home: Home, tmp_path: Path, now: datetime) -> None:
    with _stage(home, tmp_path, now, make_archive()) as stage:
        with open_stage(home, DEFAULT_PRINCIPAL, stage.id, catalogue=()) as seen:
            assert (seen.id, seen.content_digest, seen.now) == (stage.id, stage.content_digest, now)
            assert seen.read_wasm() == COMPONENT
            assert seen.read_offered_env() == NO_CHANGES
        assert stage.folder.exists()
        changes = EnvChanges(values={EnvKey("A"): ["x"]}, secrets={EnvKey("S"): "y"}, removed=(EnvKey("B"),))
        stage.offer_env(changes)
        assert open_stage(home, DEFAULT_PRINCIPAL, stage.id, catalogue=()).read_offered_env() == changes


@pytest.mark.parametrize("stage_id", ["", ".", "..", "../lock", "a" * 32, "/etc", "\0", "A" * 32])
def test_a_hostile_stage_id_names_nothing(home: Home, stage_id: str) -> None:
    with pytest.raises(NotFound) as caught:
        open_stage(home, DEFAULT_PRINCIPAL, stage_id)
    assert caught.value.code == "stage-unknown"


def test_a_stage_of_another_principal_is_refused(home: Home, tmp_path: Path, now: datetime) -> None:
    with _stage(home, tmp_path, now, make_archive()) as stage, pytest.raises(Corrupt):
        open_stage(home, PrincipalName("other"), stage.id, catalogue=())


@pytest.mark.parametrize("what", ["tree/Capsule.toml", "tree/assets/note.txt", "tree/new", "blob"])
def test_ins_23_staged_bytes_that_change_are_noticed(
    home: Home, tmp_path: Path, now: datetime, what: str
) -> None:
    with _stage(home, tmp_path, now, make_archive()) as stage:
        path = next((stage.folder / "blobs").iterdir()) if what == "blob" else stage.folder / what
        path.write_bytes(b"changed")
        with pytest.raises(Corrupt) as caught:
            stage.verify()
        assert caught.value.code == "stage-damaged"
        with pytest.raises(Corrupt):
            open_stage(home, DEFAULT_PRINCIPAL, stage.id, catalogue=())


def test_a_full_disk_while_staging_leaves_nothing(
    home: Home, tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_all", refuse)
    with pytest.raises(AosError) as caught:
        _stage(home, tmp_path, now, make_archive())
    assert caught.value.code == "no-space"
    assert names(home.staging) == []


def test_a_foreign_folder_in_the_capsules_place_is_left_alone(
    home: Home, tmp_path: Path, now: datetime
) -> None:
    home.capsule(DEFAULT_PRINCIPAL, DEMO).mkdir(parents=True)
    for path in (home.state, home.principals):
        path.chmod(0o700)
    home.etc.mkdir(exist_ok=True)
    home.layout_file.write_text("aos-1\n")
    with pytest.raises(Corrupt) as caught:
        _stage(home, tmp_path, now, make_archive())
    assert caught.value.code == "capsule-link-foreign"
    assert home.capsule(DEFAULT_PRINCIPAL, DEMO).is_dir()
