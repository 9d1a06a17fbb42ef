"""`aos completions`: print a script that was generated beforehand (`aos_cli.completion`)."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.console import get_console
from aos_cli.data import SCRIPT_FILES, data_folder


def completions(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.")],
) -> None:
    """Print the completion script of a shell.

    Names of capsules, tools and templates complete too, from an index file: TAB starts no program. JSON:
    {shell, script}.

    Examples:
      source <(aos completions bash)
      aos completions zsh > ~/.zfunc/_aos
      aos completions fish > ~/.config/fish/completions/aos.fish
    """
    if shell not in SCRIPT_FILES:
        raise typer.BadParameter(f"{shell!r} is not one of {', '.join(SCRIPT_FILES)}", param_hint="SHELL")
    console = get_console()
    script = (data_folder("completions") / SCRIPT_FILES[shell]).read_text(encoding="utf-8")
    if console.is_json:
        console.json({"shell": shell, "script": script})
    else:
        console.data(script)
