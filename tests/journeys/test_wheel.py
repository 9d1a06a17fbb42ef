"""The wheel and the sdist in clean environments outside the checkout (cases REL-01, REL-03, REL-04)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation import ROOT, Aos

pytestmark = pytest.mark.journey
BUILD_TIMEOUT_S = 900


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_sdist", ROOT, tmp_path_factory.mktemp("sdist"), os.environ)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_wheel", ROOT, tmp_path_factory.mktemp("wheel"), os.environ)


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel and its dependencies (those of this one), and no checkout."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], folder, os.environ)
    # The locked dependencies of this environment, so that the test needs no network.
    site = run([python, "-c", "import site; print(site.getsitepackages()[0])"], folder, os.environ).strip()
    own = run(
        [sys.executable, "-c", "import site; print(site.getsitepackages()[0])"], folder, os.environ
    ).strip()
    for path in Path(own).iterdir():
        link = Path(site) / path.name
        if path.suffix != ".pth" and not path.name.startswith("aos_") and not link.exists():
            link.symlink_to(path)
    return folder / "venv"


@pytest.fixture
def installed(clean: Path, tmp_path: Path) -> Iterator[Aos]:
    """`aos` of the clean environment with a PATH that has neither Rust nor git."""
    tools, temporary = tmp_path / "bin", tmp_path / "temporary"
    tools.mkdir()
    temporary.mkdir()
    for name in ("sh", "env", "uname", "id"):
        (tools / name).symlink_to(shutil.which(name) or name)
    aos = Aos(
        root=tmp_path,
        launcher=(str(clean / "bin" / "aos"),),
        extra={"PATH": f"{clean / 'bin'}:{tools}", "TMPDIR": str(temporary)},
        checkout_on_path=False,
    )
    aos.folder.mkdir()
    yield aos
    aos.close()


def test_rel_03_the_wheel_is_pure_python(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")


def test_rel_01_the_wheel_has_templates_completions_and_capsules(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "aos_cli/_data/templates/tool/template.toml" in names
    assert any(name.startswith("aos_cli/_data/completions/") for name in names)
    assert "aos_runtime/_bundled/bundled.json" in names
    assert any(name.startswith("aos_runtime/_bundled/router") for name in names)
    assert not [name for name in names if name.split("/")[0] not in {"aos_cli", "aos_runtime"}
                and ".dist-info/" not in name]  # fmt: skip


def test_the_demo_runs_with_no_rust_on_the_machine(installed: Aos) -> None:
    assert shutil.which("cargo", path=installed.environ["PATH"]) is None
    shown = installed.run("demo")
    assert "Hello" in shown.out + shown.err
    assert not installed.home.root.exists(), "the demo has a home of its own"
    temporary = Path(installed.environ["TMPDIR"])
    assert daemons_below(temporary) == [], "the demo stops its daemon"
    assert list(temporary.glob("aos-demo-*")) == [], "and removes its home"


def test_the_installed_command_makes_a_project_and_serves_the_bundled_tools(installed: Aos) -> None:
    installed.run("capsule", "new", "demo-project")
    assert (installed.folder / "demo-project" / "Capsule.toml").is_file()
    refused = installed.run("capsule", "build", "demo-project", status=1)
    assert "rustup" in refused.err, "what is missing is named, with what brings it"
    installed.run("start")
    states = {
        row["name"]: row["state"]
        for row in installed.run("status", "--format", "json").json["daemon"]["capsules"]
    }
    assert states["router"] == "ready"
    installed.run("stop")


def test_rel_04_a_wheel_from_the_sdist_needs_no_rust_no_git_and_no_network(
    sdist: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    tools = tmp_path / "bin"
    tools.mkdir()
    offline = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "http_proxy": "http://127.0.0.1:9",
        "CARGO_NET_OFFLINE": "1",
    }
    wheel = build("build_wheel", source, tmp_path / "wheel", offline)
    assert "aos_runtime/_bundled/bundled.json" in zipfile.ZipFile(wheel).namelist()


def build(hook: str, source: Path, out: Path, environ: os._Environ[str] | dict[str, str]) -> Path:
    """Run one hook of the build backend, as pip does without build isolation."""
    out.mkdir(exist_ok=True)
    code = f"import sys; from hatchling.build import {hook}; print({hook}(sys.argv[1]))"
    name = run([sys.executable, "-c", code, out], source, environ).strip().splitlines()[-1]
    return out / name


def run(command: list[object], folder: Path, environ: os._Environ[str] | dict[str, str]) -> str:
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def daemons_below(folder: Path) -> list[int]:
    """The pids of the daemons whose home is below `folder`."""
    mark = f"AOS_HOME={folder}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if b"aos_runtime.daemon" in command and mark in environ:
            found.append(int(entry.name))
    return found
