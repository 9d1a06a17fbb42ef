"""`python -m aos_cli.completion [FOLDER]`: write the scripts into `completions/`."""

from __future__ import annotations

import sys
from pathlib import Path

from aos_cli.completion.scripts import render_script
from aos_cli.data import SCRIPT_FILES


def main() -> None:
    """Write every script into the folder given, or the checkout's `completions`."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "completions"
    folder.mkdir(exist_ok=True)
    for shell, name in SCRIPT_FILES.items():
        (folder / name).write_text(render_script(shell), encoding="utf-8")


if __name__ == "__main__":
    main()
