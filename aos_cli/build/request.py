"""What a build is asked for, and what it says while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aos_cli.build.package import Compression
from aos_cli.build.plan import strict_failure
from aos_cli.console import Console, safe
from aos_runtime.errors import Issue


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to build and how.  `seed` signs the archive; None leaves it unsigned.

    `folder` is the project; where `mcp_json` is set, that file in it says what to make, whatever else is
    there.  `locked` holds for lock file and pinned toolchain; with `any_toolchain` for the lock file only.
    """

    folder: Path
    output: Path
    debug: bool = False
    locked: bool = False
    any_toolchain: bool = False
    offline: bool = False
    strict: bool = False
    compression: Compression = "gzip"
    seed: bytes | None = None
    mcp_json: Path | None = None


@dataclass(slots=True, kw_only=True)
class Talk:
    """What is said during one build, and kept for its record."""

    console: Console
    strict: bool
    warnings: list[Issue] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.console.note(safe(text))

    def doubt(self, *issues: Issue) -> None:
        """Warnings about the capsule: under `strict` all of them become the error."""
        failure = strict_failure(issues) if self.strict else None
        if failure is not None:
            raise failure
        self.warn(*issues)

    def warn(self, *issues: Issue) -> None:
        """Say each; they are no reason to fail."""
        self.warnings += issues
        for issue in issues:
            self.console.warn(safe(issue.render()))
            if issue.hint:
                self.console.hint(safe(issue.hint))
