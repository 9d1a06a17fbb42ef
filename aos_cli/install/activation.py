"""Have a staged capsule activated: by the running daemon, else by a one-shot host process.

Activating compiles the code and runs the lifecycle hook, which is the work of a process that hosts
capsules; the toolchain never does it (architecture section 3, install).  After the commit the running
daemon is told to load the new version.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from aos_cli.client import Connection, connect, read_seed
from aos_cli.control.start import daemon_environment
from aos_runtime.errors import AosError, PeerFault, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store.stage import Stage

ACTIVATE_TIMEOUT_S = 660.0
_RELOAD_TIMEOUT_S = 30.0
_ABSENT = ("daemon-not-running",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activated:
    """What the activator did.  `hook` is `ran` or `skipped`; `by_daemon` says which process it was."""

    hook: str
    by_daemon: bool


def connect_if_running(home: Home, principal: PrincipalName) -> Connection | None:
    """A connection to the daemon, None only where there is none (a broken one is an error).

    A principal that has no key of its own is served by the operator, `default`.
    """
    try:
        return connect(home, principal if read_seed(home, principal) else DEFAULT_PRINCIPAL)
    except Unavailable as error:
        if error.code in _ABSENT:
            return None
        raise


def activate(stage: Stage, environ: Mapping[str, str]) -> Activated:
    """Activate a stage that this process holds; the errors of the activator come through as they are."""
    daemon = connect_if_running(stage.home, stage.principal)
    if daemon is None:
        return _activate_in_child(stage, environ)
    with daemon:
        params: dict[str, object] = {"stage_id": stage.id, "principal": stage.principal}
        answer = daemon.kernel_request("ActivateStage", params)
    hook = answer.get("hook") if isinstance(answer, dict) else None
    return Activated(hook=str(hook or "skipped"), by_daemon=True)


def _activate_in_child(stage: Stage, environ: Mapping[str, str]) -> Activated:
    command = [
        sys.executable,
        "-P",
        "-m",
        "aos_runtime.daemon",
        "activate",
        stage.id,
        "--principal",
        stage.principal,
    ]
    try:
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=daemon_environment(stage.home, environ),
            timeout=ACTIVATE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            "activation-timeout",
            f"activating capsule `{stage.name}` took over {ACTIVATE_TIMEOUT_S:g} s",
            hint="its install hook may hang; nothing was installed",
        ) from None
    answer = _read_answer(finished.stdout)
    if finished.returncode != 0 or "error" in answer:
        raise _child_error(stage, answer, finished)
    return Activated(hook=str(answer.get("hook") or "skipped"), by_daemon=False)


def _read_answer(data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _child_error(
    stage: Stage, answer: Mapping[str, object], finished: subprocess.CompletedProcess[bytes]
) -> AosError:
    error = answer.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return ActivationFailed(error)
    tail = finished.stderr.decode("utf-8", "replace").splitlines()[-12:]
    return PeerFault(
        "activation-failed",
        f"the activator of capsule `{stage.name}` ended with status {finished.returncode} and gave no reason",
        hint="nothing was installed; this is a bug in aos, please report what it said",
        log_tail=tail,
    )


class ActivationFailed(AosError):
    """An error that the activator reported, under its own code."""

    def __init__(self, error: Mapping[str, object]) -> None:
        code, hint = error.get("code"), error.get("hint")
        AosError.__init__(
            self,
            str(code) if isinstance(code, str) else "activation-failed",
            str(error["message"]),
            hint=str(hint) if isinstance(hint, str) else "nothing was installed",
        )


def reload_capsule(home: Home, principal: PrincipalName, name: CapsuleName) -> str | None:
    """Tell the running daemon, if any, to load what was committed; a sentence where it did not."""
    return _tell(home, principal, "ReloadCapsule", name)


def unload_capsule(home: Home, principal: PrincipalName, name: CapsuleName) -> str | None:
    """Tell the running daemon, if any, to stop serving a capsule; a sentence where it did not."""
    return _tell(home, principal, "UnloadCapsule", name)


def _tell(home: Home, principal: PrincipalName, method: str, name: CapsuleName) -> str | None:
    if principal != DEFAULT_PRINCIPAL and read_seed(home, principal) is None:
        return None  # it has never connected, so the daemon holds nothing of it
    try:
        daemon = connect_if_running(home, principal)
        if daemon is None:
            return None
        with daemon:
            daemon.kernel_request(method, {"id": name}, inactivity_s=_RELOAD_TIMEOUT_S)
    except AosError as error:
        return error.message
    return None
