"""Build hook: puts into wheel and sdist the data that lives outside the two packages.

Templates and completions go under `aos_cli/_data`; the first-party capsules, built by cargo when the wheel is
built and never committed, go under `aos_runtime/_bundled` with their digests in `bundled.json`.  An sdist
carries the built capsules, so a wheel made from it needs no Rust, no git and no network.  An editable install
takes its capsules from the ignored folder that `scripts/toolchain` fills, and never waits for cargo.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA_FOLDERS = ("templates", "completions")
BUNDLE = Path("runtime/aos_runtime/_bundled")
SOURCES_FILE = "sources.blake2"
"""Beside `bundled.json`: which sources of `capsules/` the archives were built from."""


class AosDataHook(BuildHookInterface[Any]):
    """Hatchling calls this once per target: `wheel` (standard or editable) and `sdist`."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What building the capsules imports; nothing where they are built already."""
        return [] if is_bundle_fresh(Path(self.root)) else list(self.metadata.core.dependencies)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the data folders to the build.  `version` is `editable` for a development install."""
        if version == "editable":
            return
        root = Path(self.root)
        build_missing_bundle(root)
        if self.target_name == "sdist":
            build_data["artifacts"].append(f"/{BUNDLE.as_posix()}/")
            return
        for name in DATA_FOLDERS:
            build_data["force_include"][str(root / name)] = f"aos_cli/_data/{name}"
        build_data["force_include"][str(root / BUNDLE)] = "aos_runtime/_bundled"


def build_missing_bundle(root: Path) -> None:
    """Build the first-party capsules into the bundle folder unless they stand there for these sources."""
    if is_bundle_fresh(root):
        return
    sys.path[:0] = [str(root), str(root / "runtime")]
    from aos_cli.build.bundle import build_bundle

    build_bundle(root, root / BUNDLE)
    (root / BUNDLE / SOURCES_FILE).write_text(f"{sources_digest(root)}\n", encoding="ascii")


def is_bundle_fresh(root: Path) -> bool:
    """Whether the bundle folder holds what the sources of `capsules/` give."""
    recorded = root / BUNDLE / SOURCES_FILE
    if not (root / BUNDLE / "bundled.json").is_file() or not recorded.is_file():
        return False
    return recorded.read_text(encoding="ascii").strip() == sources_digest(root)


def sources_digest(root: Path) -> str:
    """BLAKE2 over names and bytes of everything below `capsules/` but cargo's output."""
    digest = hashlib.blake2b(digest_size=32)
    for path in sorted((root / "capsules").rglob("*")):
        relative = path.relative_to(root / "capsules")
        if not path.is_file() or {"target", "dist"} & set(relative.parts):
            continue
        data = path.read_bytes()
        digest.update(f"{relative.as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
