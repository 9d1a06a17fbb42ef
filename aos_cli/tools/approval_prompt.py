"""What capsules ask while a tool call waits: shown whole and escaped, answered on the connection of the call.

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

    def handle(self, event: Event, send: Send) -> None:
        """Answer an approval that the daemon itself asks for; leave every other event alone."""
        payload = event.payload
        if event.topic != TOPIC or event.source_id != NIL_SOURCE or not isinstance(payload, dict):
            return
        request_id = payload.get("request_id")
        if not isinstance(request_id, str):
            return
        if payload.get("type") == "approval_required":
            decision = self._decide(payload)
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

    def _choose(self, question: str) -> str:
        try:
            word = self._console.ask(question.removesuffix(": ")).strip().lower()
        except Unavailable:  # the input ended: nobody said yes
            return "deny"
        return _WORDS.get(word, "deny")


def describe(action: str, resource: str) -> str:
    """Action and resource on one line, whole and escaped."""
    return f"{safe(action)}: {safe(resource)}" if resource else safe(action)


def shell_word(text: str) -> str:
    """`text` as one word of a shell, escaped for a terminal."""
    import shlex

    return shlex.quote(safe(text))
