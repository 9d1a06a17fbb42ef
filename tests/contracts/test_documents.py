"""What the documents and the metadata say is true of the tree: versions, links, files, scripts."""

from __future__ import annotations

import re
import subprocess
import tomllib
from configparser import RawConfigParser
from pathlib import Path

import pytest

from aos_runtime import AOS_VERSION, HOST_VERSION

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SCRIPTS = ("quickstart", "test", "toolchain", "bench", "soak", "lock")


def test_the_three_copies_of_the_version_agree() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+)", changelog, flags=re.MULTILINE)
    assert newest is not None
    assert (PROJECT["version"], AOS_VERSION, newest[1]) == (AOS_VERSION, AOS_VERSION, AOS_VERSION)
    assert HOST_VERSION == "2026.10.1"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)", text)
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_there_runs_and_says_what_it_does(name: str) -> None:
    path = ROOT / "scripts" / name
    assert path.stat().st_mode & 0o111
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#!")
    assert lines[1].startswith(("# ", '"""'))
    if "bash" in lines[0]:
        subprocess.run(["bash", "-n", path], check=True, timeout=30)


def test_the_lock_covers_every_dependency_with_hashes_and_names_no_index() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    locked = {name.lower() for name in re.findall(r"^([A-Za-z0-9_.-]+)==", lock, flags=re.MULTILINE)}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    names = {re.split(r"[<>=!~ \[]", requirement)[0].lower() for requirement in wanted}
    assert names - locked == set()
    assert lock.count("--hash=sha256:") >= len(locked)
    assert "://" not in lock


def test_the_readme_says_which_pythons_were_run_and_what_was_not() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert declared and all(version in readme for version in declared)
    assert "not yet run" in readme


def test_the_systemd_unit_runs_a_command_that_exists() -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "docs" / "systemd" / "aos.service", encoding="utf-8")
    assert unit["Service"]["ExecStart"].split()[1:] == ["start", "--foreground"]
    assert unit["Service"]["Type"] == "exec"
    assert "WantedBy" in unit["Install"]
