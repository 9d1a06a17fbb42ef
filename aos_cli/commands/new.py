"""`aos capsule new`: a project that compiles on the first try."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from aos_cli.console import Console, get_console, safe
from aos_cli.invocation import get_invocation

_INSTALL_TIMEOUT_S = 1800.0


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lowercase letters, digits and hyphens.")],
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="Template of the project.")] = "tool",
    path: Annotated[str, typer.Option("--path", metavar="DIR", help="Folder to make it in.")] = ".",
    force: Annotated[
        bool,
        typer.Option("--force", help="Also into a folder with files; never over what you changed."),
    ] = False,
    install_target: Annotated[
        bool, typer.Option("--install-target", help="Install a missing wasm target without asking.")
    ] = False,
) -> int:
    """Start a capsule project in DIR/NAME.

    The project builds as it is. What the machine lacks for it is a warning, with the command that brings it.
    JSON: {"schema_version", "name", "kind", "path", "files", "warnings"}.

    Examples:
      aos capsule new my-capsule
      aos capsule new my-capsule --path ~/capsules
    """
    from aos_cli.build.scaffold import check_project_name, load_template, render, write_project

    console = get_console()
    capsule = check_project_name(name)
    template = load_template(kind)
    target = Path(path).expanduser().absolute() / capsule
    written = write_project(target, render(template, capsule), force=force)
    console.success(f"{safe(str(target))}: {len(written)} files from the template {kind}")
    warnings = preflight(target, get_invocation().environ, console, install=install_target)
    if console.is_json:
        console.json(
            {
                "schema_version": 1,
                "name": capsule,
                "kind": kind,
                "path": str(target),
                "files": list(written),
                "warnings": warnings,
            }
        )
        return 0
    console.note("next:")
    for command in (
        f"cd {_relative(target)}",
        "aos capsule build",
        f"aos capsule install ./dist/{capsule}.capsule",
        "aos tool call hello --arg name=Ada",
    ):
        console.note(f"  {safe(command)}")
    return 0


def preflight(folder: Path, environ: Mapping[str, str], console: Console, *, install: bool) -> list[str]:
    """Say what the machine lacks for building `folder`; each is a warning, none stops anything (case NEW-06).

    A missing target is installed with `install`, or after a yes on a terminal; never otherwise.
    """
    from aos_cli.build.toolchain import find_target_problem
    from aos_runtime.errors import AosError

    search = environ.get("PATH")
    warnings: list[str] = []
    if shutil.which("cargo", path=search) is None:
        _warn(console, warnings, "cargo was not found on PATH", "install Rust from https://rustup.rs")
        return warnings
    if shutil.which("cc", path=search) is None:
        lacking = "no C linker (cc) was found: macros and build scripts cannot be compiled"
        _warn(
            console,
            warnings,
            lacking,
            "on Debian `sudo apt install gcc libc6-dev`, on macOS `xcode-select --install`",
        )
    try:
        found = find_target_problem(folder, environ, rustc=environ.get("RUSTC") or "rustc")
    except AosError as error:
        _warn(console, warnings, error.message, error.hint)
        return warnings
    if found is None:
        return warnings
    problem, command = found
    wants = command.startswith("rustup ") and (install or _agrees(console, problem, command))
    if not (wants and _install(command, folder, environ, console)):
        _warn(console, warnings, problem, f"run `{command}`")
    return warnings


def _agrees(console: Console, problem: str, command: str) -> bool:
    if not console.interactive:
        return False
    console.note(safe(problem))
    return console.confirm(f"Run `{command}` now?", default=True)


def _install(command: str, folder: Path, environ: Mapping[str, str], console: Console) -> bool:
    """Run a rustup command, its words shown as they come; whether it did what it was run for."""
    import sys

    from aos_cli.build.process import Command, run
    from aos_runtime.errors import AosError

    def show(chunk: bytes) -> None:
        if not console.quiet:
            sys.stderr.write(chunk.decode("utf-8", "replace"))
            sys.stderr.flush()

    console.note(f"running {command}")
    try:
        finished = run(
            Command(
                arguments=command.split(),
                folder=folder,
                environ=environ,
                timeout_s=_INSTALL_TIMEOUT_S,
            ),
            show=show,
        )
    except AosError as error:
        console.warn(safe(error.message))
        return False
    if finished.status:
        console.warn(f"`{command}` failed; the project is written all the same")
    return finished.status == 0


def _warn(console: Console, warnings: list[str], problem: str, hint: str) -> None:
    warnings.append(problem)
    console.warn(safe(problem))
    console.hint(safe(hint))


def _relative(target: Path) -> str:
    """The shortest way there from here."""
    relative = os.path.relpath(target)
    return str(target) if relative.startswith("..") else relative
