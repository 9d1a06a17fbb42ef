"""Where the data files that travel with the toolchain are.

In a wheel they lie below `aos_cli/_data/<kind>`, in a checkout at `<root>/<kind>`.  Read only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from aos_runtime.errors import NotFound

Kind = Literal["templates", "completions"]

SCRIPT_FILES = {"bash": "aos.bash", "zsh": "_aos", "fish": "aos.fish", "powershell": "aos.ps1"}
"""Which file of `completions` belongs to which shell."""


def data_folder(kind: Kind) -> Path:
    """The folder of one kind of data file.  NotFound `data-missing` where the installation is incomplete."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_data" / kind, package.parent / kind):
        if folder.is_dir():
            return folder
    raise NotFound(
        "data-missing",
        f"this installation of aos has no {kind}",
        hint="reinstall the aos-cli package",
        kind=kind,
    )
