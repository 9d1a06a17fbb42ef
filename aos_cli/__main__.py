"""`aos` and `python -m aos_cli`: the only call of `sys.exit` in the toolchain."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line of this process and exit with its status."""
    if sys.platform == "win32":
        sys.exit("error: aos runs on Linux and macOS; on Windows use it inside WSL")
    from aos_cli.signals import end_on_signal

    end_on_signal()  # Ctrl-C before a command runs is no reason for a traceback
    from aos_cli.app import run

    sys.exit(run(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
