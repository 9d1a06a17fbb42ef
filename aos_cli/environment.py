"""Every environment variable that the command line reads, named once.

`AOS_HOME` itself belongs to `aos_runtime.home`.  Nothing here reads a value: readers take a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping

PRINCIPAL = "AOS_PRINCIPAL"
PRINCIPAL_FALLBACK = "ASTRID_PRINCIPAL"
"""Read where AOS_PRINCIPAL is not set, for scripts written for the published client."""

COLOR = "AOS_COLOR"
"""always, never or auto; `--color` wins over it, it wins over every variable below."""
NO_COLOR = "NO_COLOR"
FORCE_COLOR = ("CLICOLOR_FORCE", "FORCE_COLOR")
TERM = "TERM"

BACKTRACE = "AOS_BACKTRACE"
"""1: show Python's traceback of an unexpected failure."""

VARIABLE_PREFIX = "AOS_VAR_"
VARIABLE_PREFIX_FALLBACK = "ASTRID_VAR_"
"""`AOS_VAR_<KEY>` supplies the `[env]` value KEY at install."""

CI = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "TF_BUILD")
"""Any of these, set and not `0` or `false`, means that nobody is there to answer a prompt."""


def is_truthy(environ: Mapping[str, str], name: str) -> bool:
    """Whether a switch variable is on: set, and not empty, `0` or `false`."""
    return environ.get(name, "").lower() not in {"", "0", "false", "no"}


def runs_in_ci(environ: Mapping[str, str]) -> bool:
    """Whether one of the usual continuous-integration variables is on."""
    return any(is_truthy(environ, name) for name in CI)
