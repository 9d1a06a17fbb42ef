"""`python -m aos_runtime.daemon serve` and `python -m aos_runtime.daemon activate`.

Started by the toolchain and by service managers.  The home is that of `AOS_HOME`.  Exit status: 0, 1 for
a failure, 2 for wrong arguments, 130 for a second signal.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aos_runtime.errors import AosError, InvalidInput
from aos_runtime.home import Home, resolve_home
from aos_runtime.names import parse_principal_name

if TYPE_CHECKING:
    from aos_runtime.daemon.options import Options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the two; the exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it, without a traceback
    parsed = _parser().parse_args(arguments)
    if parsed.what == "serve":
        return _serve(parsed)
    return _activate(parsed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m aos_runtime.daemon", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    serve = commands.add_parser("serve", help="host capsules until told to stop")
    serve.add_argument("--ephemeral", action="store_true", help="end when the last client has gone")
    serve.add_argument(
        "--foreground", action="store_true", help="stay in this session and repeat the log on stderr"
    )
    serve.add_argument(
        "--workspace", type=Path, metavar="DIR", help="the folder that cwd:// means by default"
    )
    activate = commands.add_parser("activate", help="activate a staged capsule and print the outcome as JSON")
    activate.add_argument("stage_id", metavar="STAGE_ID")
    activate.add_argument("--principal", required=True)
    return parser


def _serve(parsed: argparse.Namespace) -> int:
    from aos_runtime.daemon.process import serve, tell_error

    try:
        home = resolve_home(os.environ)
        options = _options(parsed, home)
    except AosError as error:
        tell_error(error)
        return 1
    return serve(home, options)


def _options(parsed: argparse.Namespace, home: Home) -> Options:
    from aos_runtime.daemon.options import Options
    from aos_runtime.daemon.workspace import find_workspace, workspace_refusal

    user = os.environ.get("HOME")
    user_home = Path(user) if user else None
    if parsed.workspace is None:
        workspace = find_workspace(Path.cwd(), home, user_home)
    else:
        workspace = parsed.workspace.resolve()
        problem = workspace_refusal(workspace, home, user_home)
        if problem is not None:
            raise InvalidInput(
                "workspace-refused",
                f"{workspace}: {problem}",
                hint="name a project folder of your own",
                path=str(workspace),
            )
    return Options(
        ephemeral=parsed.ephemeral, foreground=parsed.foreground, workspace=workspace, user_home=user_home
    )


def _activate(parsed: argparse.Namespace) -> int:
    from aos_runtime.daemon.activate import activate_once, render_activation, render_failure

    try:
        principal = parse_principal_name(parsed.principal)
        activation = activate_once(resolve_home(os.environ), principal, parsed.stage_id)
    except AosError as error:
        sys.stdout.write(render_failure(error) + "\n")
        return 1
    sys.stdout.write(render_activation(activation) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
