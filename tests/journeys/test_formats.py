"""Archives of every form that exists install and answer: ours as it was first written, and what others write.

`tests/golden/formats/v1/scaffold.capsule` is the scaffold as `aos capsule build` packed it when the format
was settled.  It is never made anew: what installed once must install for ever.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from aos_runtime.capsule.archive import iter_members, scan_archive, write_archive
from tests.support.installation import ROOT, Aos

pytestmark = pytest.mark.journey
GOLDEN = ROOT / "tests" / "golden" / "formats" / "v1" / "scaffold.capsule"
PROVENANCE = "Capsule.provenance.json"


def members() -> list[tuple[str, bytes]]:
    data = io.BytesIO(GOLDEN.read_bytes())
    inventory = scan_archive(data)
    return [(member.path, member.data) for member in iter_members(data, inventory)]


def as_the_first_builder_wrote(folder: Path) -> Path:
    """The form of 0.10.4: real times, modes and owners, a file name in the gzip header, no provenance."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, data in members():
            if path == PROVENANCE:
                continue
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime, entry.mode = len(data), 1_780_000_000, 0o640
            entry.uid = entry.gid = 1000
            entry.uname = entry.gname = "builder"
            archive.addfile(entry, io.BytesIO(data))
    packed = io.BytesIO()
    with gzip.GzipFile("hello.tar", "wb", fileobj=packed, mtime=1_780_000_000) as stream:
        stream.write(tar.getvalue())
    return written(folder / "first.capsule", packed.getvalue())


def as_zstd(folder: Path) -> Path:
    data = io.BytesIO(GOLDEN.read_bytes())
    inventory = scan_archive(data)
    return written(
        folder / "zstd.capsule", write_archive(list(iter_members(data, inventory)), compression="zstd")
    )


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", ["golden", "first", "zstd"])
def test_every_form_installs_and_answers(form: str, aos: Aos, tmp_path: Path) -> None:
    archive = {"golden": lambda: GOLDEN, "first": lambda: as_the_first_builder_wrote(tmp_path),
               "zstd": lambda: as_zstd(tmp_path)}[form]()  # fmt: skip
    aos.run("capsule", "install", str(archive), "--approve-untrusted")
    assert aos.run("tool", "call", "hello", "--arg", "name=Ada").out == "Hello, Ada!\n"


def test_the_same_content_in_two_forms_is_installed_the_same(tmp_path: Path) -> None:
    trees = []
    for name, archive in (("golden", GOLDEN), ("zstd", as_zstd(tmp_path))):
        aos = Aos(root=tmp_path / name)
        aos.run("capsule", "install", str(archive), "--approve-untrusted")
        installed = aos.home.installed("default") / "scaffold"  # type: ignore[arg-type]
        trees.append({path.relative_to(installed): path.read_bytes() for path in sorted(installed.rglob("*"))
                      if path.is_file() and path.name != "meta.json"})  # fmt: skip
    assert trees[0] == trees[1] != {}


def test_foreign_content_is_refused_without_its_own_consent(aos: Aos) -> None:
    refused = aos.run("capsule", "install", str(GOLDEN), "--yes", status=1)
    assert "--approve-untrusted" in refused.err
    assert aos.run("capsule", "list", "--format", "json").json == []
