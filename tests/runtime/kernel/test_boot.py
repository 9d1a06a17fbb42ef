"""The bundled capsules: put in place, replaced when newer, never put back, and no reason not to start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aos_runtime.capsule.archive import scan_archive
from aos_runtime.home import Home
from aos_runtime.kernel.activation import Activation, Activator
from aos_runtime.kernel.boot import ensure_bundled, index_tools, report_view
from aos_runtime.names import CapsuleName
from aos_runtime.store.bundled import read_catalogue
from aos_runtime.store.commit import Approval, commit, remove_installed
from aos_runtime.store.installed import read_installed
from aos_runtime.store.layout import open_home
from aos_runtime.store.names_index import read_tools
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.stage import Stage, stage_source
from tests.support.capsules import make_archive, write_capsule
from tests.support.kernels import ALICE, Bench, FakeJournal, fixed_now

DEMO = CapsuleName("demo")


class FakeActivator(Activator):
    def activate(self, stage: Stage) -> Activation:
        return Activation(wasm_hash=stage.wasm_digest, phase=stage.phase.value, hook="skipped")


class Wheel:
    """A folder of bundled capsules and a home."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        open_home(self.home, create=True)
        self.folder = root / "bundled"
        self.journal = FakeJournal()

    def bundle(self, *versions: tuple[str, str], extra: str = "", asks: tuple[str, ...] = ()) -> None:
        rows = []
        for name, version in versions:
            path = write_capsule(self.folder / f"{name}.capsule", make_archive(name, version, extra=extra))
            with path.open("rb") as file:
                digest = scan_archive(file).content_digest
            row = {"name": name, "version": version, "file": path.name, "content_digest": digest}
            rows.append({**row, "asks": list(asks)})
        (self.folder / "bundled.json").write_text(json.dumps(rows))

    def ensure(self) -> tuple[str, ...]:
        activator = FakeActivator(codes=None, state=None, journal=self.journal, publish=None)  # type: ignore[arg-type]
        return ensure_bundled(self.home, ALICE, activator, self.journal, fixed_now(), folder=self.folder)


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    return Wheel(tmp_path)


def test_an_absent_capsule_is_installed_once_under_the_wheels_authority(wheel: Wheel) -> None:
    wheel.bundle(("demo", "0.1.0"), ("other", "0.1.0"))
    assert wheel.ensure() == ("demo", "other")
    installed = read_installed(wheel.home, ALICE, DEMO)
    assert (installed.bundled, installed.receipt.source) == (True, ApprovalSource.BUNDLED)
    assert wheel.ensure() == ()


def test_a_newer_one_replaces_it(wheel: Wheel) -> None:
    wheel.bundle(("demo", "0.2.0"))
    wheel.ensure()
    wheel.bundle(("demo", "0.1.0"))
    assert wheel.ensure() == ()
    wheel.bundle(("demo", "0.3.0"))
    assert wheel.ensure() == ("demo",)
    assert read_installed(wheel.home, ALICE, DEMO).version == "0.3.0"


NET = '\n[capabilities]\nnet = ["x.org"]\n'


def test_one_that_asks_for_something_waits_for_a_yes(wheel: Wheel) -> None:
    wheel.bundle(("demo", "0.1.0"), extra=NET, asks=("net",))
    assert wheel.ensure() == ()
    assert wheel.journal.lines == []
    [row] = read_catalogue(wheel.folder)
    with stage_source(wheel.home, ALICE, row.path, now=fixed_now(), catalogue=(row,)) as stage:
        assert stage.needs_consent
        commit(stage, approval=Approval(source=ApprovalSource.BUNDLED), source_text=None)
    wheel.bundle(("demo", "0.2.0"), extra=NET, asks=("net",))
    assert wheel.ensure() == ("demo",), "it asks for nothing that it does not hold"
    wheel.bundle(("demo", "0.3.0"), extra=NET.replace("x.org", "*"), asks=("net",))
    assert wheel.ensure() == ()
    assert wheel.journal.lines[-1] == ("_daemon", "warn", "demo 0.3.0 asks for more than it holds: aos init")
    assert read_installed(wheel.home, ALICE, DEMO).version == "0.2.0"


def test_one_that_the_operator_removed_stays_removed(wheel: Wheel) -> None:
    wheel.bundle(("demo", "0.1.0"))
    wheel.ensure()
    remove_installed(wheel.home, ALICE, DEMO, purge=False)
    assert wheel.ensure() == ()


def test_one_that_is_damaged_is_logged_and_the_others_are_installed(wheel: Wheel) -> None:
    wheel.bundle(("demo", "0.1.0"), ("other", "0.1.0"))
    (wheel.folder / "demo.capsule").write_bytes(b"not a capsule")
    assert wheel.ensure() == ("other",)
    [(_, level, text), _] = wheel.journal.lines
    assert level == "error"
    assert text.startswith("bundled capsule demo 0.1.0: ")


def test_a_damaged_catalogue_is_logged(wheel: Wheel) -> None:
    wheel.folder.mkdir()
    (wheel.folder / "bundled.json").write_text("[")
    assert wheel.ensure() == ()
    assert "bundled.json is damaged" in wheel.journal.lines[0][2]


def test_what_is_loaded_is_told_and_its_tools_are_indexed(wheel: Wheel) -> None:
    bench = Bench()
    row = {"tool.v1.execute.x": "go"}
    bench.capsule("first", subscribe=row, tools=["x", "a"], installed_at="2026-01-01T00:00:00+00:00")
    bench.capsule("second", subscribe=row, tools=["x"])
    view = bench.lifecycle.load_all(ALICE)
    report_view(view, wheel.journal)
    assert [text for _, _, text in wheel.journal.lines] == [
        "principal alice has 2 capsules ready",
        f"capsule {view.surfaces.shadowed[0].loser}: tool.v1.execute.x is shadowed by "
        f"{view.surfaces.shadowed[0].winner}",
    ]
    index_tools(wheel.home, view, wheel.journal)
    assert read_tools(wheel.home, ALICE) == {"first": ("a", "x"), "second": ("x",)}
