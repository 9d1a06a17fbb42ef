"""The installer killed at moments spread over its whole life (case INS-03), with the real command."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from aos_runtime.capsule.archive import iter_members, scan_archive, write_archive
from tests.support.installation import Aos

pytestmark = pytest.mark.journey
MOMENTS = 20


def with_version(archive: Path, version: str, target: Path) -> Path:
    """The same capsule as another version, unsigned."""
    data = io.BytesIO(archive.read_bytes())
    members = []
    for member in iter_members(data, scan_archive(data)):
        if member.path == "Capsule.toml":
            text = re.sub(r'(?m)^(version\s*=\s*)"[^"]*"', rf'\1"{version}"', member.data.decode(), count=1)
            member = replace(member, data=text.encode())
        if member.path != "Capsule.provenance.json":
            members.append(member)
    target.write_bytes(write_archive(members, compression="gzip"))
    return target


def installed_version(aos: Aos) -> str:
    rows = aos.run("capsule", "list", "--format", "json").json
    (version,) = [row["version"] for row in rows if row["name"] == "hello"]
    return str(version)


def test_ins_03_a_kill_leaves_the_old_version_or_the_new_one(
    aos: Aos, hello_capsule: Path, tmp_path: Path
) -> None:
    versions = {
        version: with_version(hello_capsule, version, tmp_path / f"{version}.capsule")
        for version in ("0.1.0", "0.2.0")
    }
    install = {
        version: ("capsule", "install", str(path), "--approve-untrusted")
        for version, path in versions.items()
    }
    aos.run(*install["0.1.0"])
    started = time.monotonic()
    aos.run(*install["0.2.0"])
    whole_s = time.monotonic() - started
    seen = set()
    for moment in range(MOMENTS):
        before = installed_version(aos)
        wanted = "0.1.0" if before == "0.2.0" else "0.2.0"
        process = aos.start(*install[wanted])
        time.sleep(1.3 * whole_s * (moment + 1) / MOMENTS)
        process.kill()
        process.communicate(timeout=30)
        after = installed_version(aos)
        assert after in (before, wanted)
        seen.add(after == wanted)
        aos.run("capsule", "show", "hello")
    assert False in seen, "the kills fell before the commit too"
    aos.run(*install["0.2.0"])
    assert installed_version(aos) == "0.2.0"
    assert list(aos.home.staging.iterdir()) == [], "the next install swept what the kills left"
    assert aos.run("tool", "call", "hello", "--arg", "name=Ada").out == "Hello, Ada!\n"
