"""What is asked while a tool call waits: shown whole and escaped, answered on the connection of the call.

A capsule asks for an approval, the daemon whether the principal may use a capsule at all (a grant).

The default is no.  Where nobody is there to answer, the request is denied at once and the message names the
option and the policy file that would allow it (cases ABI-34; daemon-kernel.md 9.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aos_cli.console import Console, safe
from aos_runtime.errors import Unavailable
from aos_runtime.wire.client import Event
from aos_runtime.wire.methods import NIL_SOURCE

TOPIC = "astrid.v1.approval"
REPLY_PREFIX = "astrid.v1.approval.response."
RESULT_PREFIX = "astrid.v1.grant.result."
RESULT_WAIT_S = 10.0
_WORDS = {
    "y": "approve",
    "yes": "approve",
    "o": "approve",
    "once": "approve",
    "s": "approve_session",
    "session": "approve_session",
    "a": "approve_always",
    "always": "approve_always",
}

Send = Callable[[str, Mapping[str, object]], None]
"""Sends one payload on a topic of the connection that was asked."""


class ApprovalPrompt:
    """Handles the events of one connection.  `actions` were approved beforehand, by their exact name."""

    def __init__(self, console: Console, *, policy_file: str, actions: Sequence[str] = ()) -> None:
        self._console = console
        self._policy_file = policy_file
        self._actions = frozenset(actions)
        self._granting: str | None = None
        self._is_granted: bool | None = None

    def handle(self, event: Event, send: Send) -> None:
        """Answer an approval that the daemon itself asks for; leave every other event alone."""
        payload = event.payload
        if event.topic.startswith(RESULT_PREFIX) and event.source_id == NIL_SOURCE:
            self._note_result(payload)
            return
        if event.topic != TOPIC or event.source_id != NIL_SOURCE or not isinstance(payload, dict):
            return
        request_id = payload.get("request_id")
        if not isinstance(request_id, str):
            return
        if payload.get("type") == "approval_required":
            decision = self._decide(payload)
        elif payload.get("type") == "grant_required":
            decision = self._decide_grant(payload)
            self._granting = None if decision == "deny" else request_id
        else:
            return
        answer = {"type": "approval_response", "request_id": request_id, "decision": decision}
        send(REPLY_PREFIX + request_id, answer)

    def _decide(self, payload: Mapping[str, Any]) -> str:
        action, resource = str(payload.get("action", "")), str(payload.get("resource", ""))
        reason = str(payload.get("reason", ""))
        console = self._console
        if action in self._actions:
            console.note(f"Approved by --approve: {safe(action)}: {safe(resource)}")
            return "approve"
        if not console.interactive:
            console.warn(
                f"denied, since nobody is there to answer: {safe(reason)}: {describe(action, resource)}"
            )
            if not console.is_json:
                console.hint(f"pass --approve {shell_word(action)}, or write a rule in {self._policy_file}")
            return "deny"
        with console.hushed():
            console.raw_error(f"{safe(reason)}\n  Action:    {safe(action)}\n  Resource:  {safe(resource)}")
            return self._choose("Allow it? [y] once, [s]ession, [a]lways, [N]o: ")

    def was_granted(self, wait_event: Callable[[float, Callable[[Event], bool]], None]) -> bool:
        """Whether the principal may use now what it could not when it called; waits for a yes to take effect.

        `wait_event(seconds, is_enough)` hands over events until one is enough.
        """
        if self._granting is not None and self._is_granted is None:
            wait_event(RESULT_WAIT_S, self._is_result)
        return self._is_granted is True

    def _is_result(self, event: Event) -> bool:
        self.handle(event, _send_nothing)
        return self._is_granted is not None

    def _note_result(self, payload: object) -> None:
        if isinstance(payload, dict) and payload.get("request_id") == self._granting is not None:
            self._is_granted = payload.get("granted") is True

    def _decide_grant(self, payload: Mapping[str, Any]) -> str:
        capsule, principal = safe(str(payload.get("capsule_id", ""))), safe(str(payload.get("principal", "")))
        console = self._console
        if not console.interactive:
            console.warn(f"denied, since nobody is there to answer: capsule {capsule} for {principal}")
            if not console.is_json:
                console.hint(f"run `aos agent modify {principal} --add-capsule {capsule}`")
            return "deny"
        with console.hushed():
            console.raw_error(f"Principal {principal} may not use capsule {capsule} yet.")
            word = self._ask("Allow it from now on? [y] yes, [N]o")
        return "approve_always" if word in ("y", "yes") else "deny"

    def _ask(self, question: str) -> str:
        try:
            return self._console.ask(question).strip().lower()
        except Unavailable:  # the input ended: nobody said yes
            return ""

    def _choose(self, question: str) -> str:
        return _WORDS.get(self._ask(question.removesuffix(": ")), "deny")


def _send_nothing(_topic: str, _payload: Mapping[str, object]) -> None:
    """Nothing is asked any more."""


def describe(action: str, resource: str) -> str:
    """Action and resource on one line, whole and escaped."""
    return f"{safe(action)}: {safe(resource)}" if resource else safe(action)


def shell_word(text: str) -> str:
    """`text` as one word of a shell, escaped for a terminal."""
    import shlex

    return shlex.quote(safe(text))
