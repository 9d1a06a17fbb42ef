"""Which script belongs to which shell, and how it is made."""

from __future__ import annotations

from aos_cli.completion.bash import render_bash
from aos_cli.completion.fish import render_fish
from aos_cli.completion.model import read_tree
from aos_cli.completion.powershell import render_powershell
from aos_cli.completion.zsh import render_zsh

_RENDERERS = {"bash": render_bash, "zsh": render_zsh, "fish": render_fish, "powershell": render_powershell}


def render_script(shell: str) -> str:
    """The script of one shell of SCRIPT_FILES, from the command tree as it is now."""
    return _RENDERERS[shell](read_tree())
