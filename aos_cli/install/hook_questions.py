"""The questions of an install hook: answered from the command line, the environment, a default or a person.

Order: `--answer`, AOS_VAR_<KEY> or ASTRID_VAR_<KEY>, a prompt where a terminal is there, the hook's own
default.  What nobody answers is refused at once, and the error lists how to supply it (case ABI-31).  A
secret is typed unseen and appears in no message.  Source: host-abi.md 1.11.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aos_cli.console import Console, safe
from aos_cli.install.env_values import from_environment, variable_name
from aos_runtime.errors import AosError, InvalidInput, Issue

ATTEMPTS = 3
MAX_TAGS = 1024


def parse_answers(pairs: Sequence[str]) -> dict[str, str]:
    """`--answer KEY=VALUE` words as a table.  InvalidInput `answer-invalid`."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, mark, value = pair.partition("=")
        if not mark or not key or key in found:
            what = "is given twice" if key in found else "is not KEY=VALUE"
            raise InvalidInput(
                "answer-invalid", f"--answer {key[:40]!r} {what}", hint="write --answer KEY=VALUE"
            )
        found[key] = value
    return found


class HookQuestions:
    """Answers the `field` of one elicitation after the other; `refused` are those that nobody answered."""

    def __init__(
        self,
        console: Console,
        *,
        given: Mapping[str, str],
        environ: Mapping[str, str],
        interactive: bool,
    ) -> None:
        self._console = console
        self._given = given
        self._environ = environ
        self._interactive = interactive
        self.refused: list[tuple[str, str]] = []
        self._asked: set[str] = set()

    def answer(self, capsule: str, field: Mapping[str, Any]) -> dict[str, object]:
        """`{"value"}` or `{"values"}`; empty for a refusal."""
        key = str(field.get("key", ""))
        kind = field.get("field_type")
        self._asked.add(key)
        supplied = self._given.get(key, from_environment(key, self._environ))
        if supplied is not None:
            return {"values": _read_list(supplied)} if kind == "Array" else {"value": supplied}
        if self._interactive:
            return self._ask(capsule, field, kind)
        default = field.get("default")
        if isinstance(default, str):
            return {"value": default}
        self.refused.append((key, str(field.get("prompt", ""))))
        return {}

    @property
    def unused(self) -> tuple[str, ...]:
        """The keys of answers that no question asked for."""
        return tuple(key for key in self._given if key not in self._asked)

    def problem(self, capsule: str) -> AosError | None:
        """What to tell when a question went unanswered, None where none did."""
        if not self.refused:
            return None
        first = self.refused[0][0]
        return InvalidInput(
            "answer-missing",
            f"the install hook of `{safe(capsule)}` asks, and nobody is there to answer",
            hint=f"pass --answer {safe(first)}=VALUE, or set {variable_name(first)}; nothing was changed",
            issues=[Issue(message=f"{safe(key)}: {safe(prompt)}") for key, prompt in self.refused],
        )

    def _ask(self, capsule: str, field: Mapping[str, Any], kind: object) -> dict[str, object]:
        console = self._console
        question = f"{safe(capsule)} asks: {safe(str(field.get('prompt', '')))}"
        with console.hushed():
            if kind == "Secret":
                return _filled("value", console.ask(question, hidden=True))
            if kind == "Array":
                return {"values": self._ask_list(question)}
            if isinstance(kind, dict) and isinstance(kind.get("Enum"), list):
                return self._ask_choice(question, [str(one) for one in kind["Enum"]], field.get("default"))
            default = field.get("default")
            return {"value": console.ask(question, default=default if isinstance(default, str) else None)}

    def _ask_list(self, question: str) -> list[str]:
        self._console.raw_error(f"{question} (one a line, an empty line ends)")
        values: list[str] = []
        while len(values) < MAX_TAGS:
            value = self._console.ask(f"  {len(values) + 1}")
            if not value:
                break
            values.append(value)
        return values

    def _ask_choice(self, question: str, options: list[str], default: object) -> dict[str, object]:
        console = self._console
        console.raw_error(question)
        for number, option in enumerate(options, start=1):
            console.raw_error(f"  {number}) {safe(option)}")
        for _ in range(ATTEMPTS):
            word = console.ask("Number or value", default=default if isinstance(default, str) else None)
            if word in options:
                return {"value": word}
            if word.isascii() and word.isdigit() and 1 <= int(word) <= len(options):
                return {"value": options[int(word) - 1]}
        return {}


def _filled(name: str, value: str) -> dict[str, object]:
    return {name: value} if value else {}


def _read_list(text: str) -> list[str]:
    """A JSON list of text as it is, everything else as one item."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value if is_list else [text]
