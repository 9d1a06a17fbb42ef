"""Have a staged capsule activated: by the running daemon, else by a one-shot host process.

Activating compiles the code and runs the lifecycle hook, which is the work of a process that hosts
capsules; the toolchain never does it (architecture section 3, install).  After the commit the running
daemon is told to load the new version.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from aos_cli.client import Connection, connect, read_seed
from aos_cli.control.start import daemon_environment
from aos_cli.install.hook_questions import HookQuestions
from aos_runtime.capsule.manifest import Manifest
from aos_runtime.errors import AosError, PeerFault, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store.env import read_env, read_secrets, resolve_env
from aos_runtime.store.stage import Stage
from aos_runtime.wire.client import Event
from aos_runtime.wire.methods import NIL_SOURCE

ACTIVATE_TIMEOUT_S = 660.0
_RELOAD_TIMEOUT_S = 30.0
_CHILD_END_S = 10.0
ELICIT_TOPIC = "astrid.v1.elicit"
ELICIT_REPLIES = "astrid.v1.elicit.response."
_ABSENT = ("daemon-not-running",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activated:
    """What the activator did.  `hook` is `ran` or `skipped`; `by_daemon` says which process it was."""

    hook: str
    by_daemon: bool
    warnings: tuple[str, ...] = ()
    """What the hook logged as a warning or an error, spelled out and still to be escaped."""


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


def activate(stage: Stage, environ: Mapping[str, str], questions: HookQuestions) -> Activated:
    """Activate a stage that this process holds; the errors of the activator come through as they are.

    `questions` answers the hook.  InvalidInput `answer-missing` where it could not.
    """
    try:
        daemon = connect_if_running(stage.home, stage.principal)
        if daemon is None:
            activated = _activate_in_child(stage, environ, questions)
        else:
            with daemon:
                activated = _activate_in_daemon(daemon, stage, questions)
    except AosError as error:
        unanswered = questions.problem(stage.name)
        if unanswered is None:
            raise
        raise unanswered from error
    unanswered = questions.problem(stage.name)
    if unanswered is not None:
        raise unanswered
    return activated


def _activate_in_daemon(daemon: Connection, stage: Stage, questions: HookQuestions) -> Activated:
    def on_event(event: Event) -> None:
        payload = event.payload
        if event.topic != ELICIT_TOPIC or event.source_id != NIL_SOURCE or not isinstance(payload, dict):
            return
        request_id, field = payload.get("request_id"), payload.get("field")
        if isinstance(request_id, str) and isinstance(field, dict):
            answer = questions.answer(stage.name, field)
            reply = {"type": "elicit_response", "request_id": request_id, **answer}
            daemon.publish(ELICIT_REPLIES + request_id, reply)

    params: dict[str, object] = {"stage_id": stage.id, "principal": stage.principal}
    answer = daemon.kernel_request("ActivateStage", params, on_event=on_event)
    return _activated(answer if isinstance(answer, dict) else {}, by_daemon=True)


def _activated(answer: Mapping[str, object], *, by_daemon: bool) -> Activated:
    warnings = answer.get("warnings")
    told = tuple(str(one) for one in warnings) if isinstance(warnings, list) else ()
    return Activated(hook=str(answer.get("hook") or "skipped"), by_daemon=by_daemon, warnings=told)


def _activate_in_child(stage: Stage, environ: Mapping[str, str], questions: HookQuestions) -> Activated:
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
    with tempfile.TemporaryFile() as complaints:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=daemon_environment(stage.home, environ),
            start_new_session=True,  # Ctrl-C is ours: the child learns of it from the end of its input
        )
        try:
            answer = _converse(child, stage, questions)
        finally:
            _end(child)
        if child.returncode != 0 or "error" in answer:
            complaints.seek(0)
            raise _child_error(stage, answer, child.returncode, complaints.read())
    return _activated(answer, by_daemon=False)


def _converse(child: subprocess.Popen[bytes], stage: Stage, questions: HookQuestions) -> dict[str, object]:
    """Answer what the child asks until it says how it went, or ends."""
    assert child.stdin is not None
    assert child.stdout is not None
    for line in _lines(child.stdout.fileno(), stage):
        said = _read_answer(line)
        asked = said.get("elicit")
        if not isinstance(asked, dict):
            return said
        field = asked.get("field")
        answer = questions.answer(stage.name, field if isinstance(field, dict) else {})
        try:
            child.stdin.write(json.dumps(answer).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            break
    return {}


def _lines(handle: int, stage: Stage) -> Iterator[bytes]:
    """Lines as they come.  Unavailable `activation-timeout` where none comes for too long."""
    data = b""
    while True:
        line, mark, rest = data.partition(b"\n")
        if mark:
            data = rest
            yield line
            continue
        readable, _, _ = select.select([handle], [], [], ACTIVATE_TIMEOUT_S)
        if not readable:
            raise Unavailable(
                "activation-timeout",
                f"activating capsule `{stage.name}` took over {ACTIVATE_TIMEOUT_S:g} s",
                hint="its install hook may hang; nothing was installed",
            )
        chunk = os.read(handle, 65536)
        if not chunk:
            return
        data += chunk


def _end(child: subprocess.Popen[bytes]) -> None:
    """Close its input, give it a moment to put things right, then end it."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(BrokenPipeError):
        child.stdin.close()
    try:
        child.wait(_CHILD_END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    child.stdout.close()


def _read_answer(data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _child_error(stage: Stage, answer: Mapping[str, object], status: int, complaints: bytes) -> AosError:
    error = answer.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return ActivationFailed(error)
    tail = complaints.decode("utf-8", "replace").splitlines()[-12:]
    return PeerFault(
        "activation-failed",
        f"the activator of capsule `{stage.name}` ended with status {status} and gave no reason",
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
    problem = _tell(home, principal, "ReloadCapsule", name)
    return None if problem is None else problem.message


def try_version(home: Home, principal: PrincipalName, manifest: Manifest) -> str | None:
    """As `reload_capsule`, for a version whose predecessor can be put back.

    Unavailable `capsule-not-ready` where the daemon tried it and it does not serve, though it lacks no value.
    """
    problem = _tell(home, principal, "ReloadCapsule", manifest.name)
    if problem is None or problem.code != "daemon-refused":
        return None if problem is None else problem.message
    stored, secrets = read_env(home, principal, manifest.name), read_secrets(home, principal, manifest.name)
    if resolve_env(manifest, stored, secrets).missing:
        return problem.message
    raise Unavailable(
        "capsule-not-ready",
        f"{problem.message}; the version that was installed before is back and serves on",
        hint=f"see `aos logs {manifest.name}` for what it said",
        name=manifest.name,
    )


def unload_capsule(home: Home, principal: PrincipalName, name: CapsuleName) -> str | None:
    """Tell the running daemon, if any, to stop serving a capsule; a sentence where it did not."""
    problem = _tell(home, principal, "UnloadCapsule", name)
    return None if problem is None else problem.message


def _tell(home: Home, principal: PrincipalName, method: str, name: CapsuleName) -> AosError | None:
    if principal != DEFAULT_PRINCIPAL and read_seed(home, principal) is None:
        return None  # it has never connected, so the daemon holds nothing of it
    try:
        daemon = connect_if_running(home, principal)
        if daemon is None:
            return None
        with daemon:
            daemon.kernel_request(method, {"id": name}, inactivity_s=_RELOAD_TIMEOUT_S)
    except AosError as error:
        return error
    return None
