"""What must be agreed to before an install, and the question that asks for it.

A signature says who built, consent says what was agreed (architecture, "Signature and
consent").  `decide` is pure; `obtain_consent` shows and asks.  Everything shown came out of an archive
and is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from aos_cli.console import Console, plain, safe
from aos_cli.render.capsules import permission_lines
from aos_cli.render.units import short_digest
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.errors import Denied
from aos_runtime.store.origin import Phase, Provenances
from aos_runtime.store.stage import Stage


class Decision(Enum):
    """What consent needs."""

    SILENT = "silent"
    ASK = "ask"
    AGREED = "agreed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the caller said on the command line, and whether somebody can be asked."""

    yes: bool
    approve_untrusted: bool
    interactive: bool


def decide(*, trusted: bool, widens: bool, answers: Answers) -> Decision:
    """Silent only when trusted and nothing is asked; `--yes` never stands in for trust."""
    if trusted:
        if not widens:
            return Decision.SILENT
        if answers.yes or answers.approve_untrusted:
            return Decision.AGREED
    else:
        if answers.approve_untrusted:
            return Decision.AGREED
        if answers.yes:
            return Decision.REFUSED
    return Decision.ASK if answers.interactive else Decision.REFUSED


def is_trusted(provenance: Provenances) -> bool:
    """Whether this home, or the wheel it came with, vouches for the archive."""
    return provenance in (Provenances.LOCAL, Provenances.BUNDLED)


def describe_request(stage: Stage) -> str:
    """The page that is shown before the question: who signed, which bytes, what they ask for."""
    signer = {
        Provenances.LOCAL: "this home",
        Provenances.BUNDLED: "comes with this aos",
        Provenances.FOREIGN: f"another key: {stage.signer}",
        Provenances.UNSIGNED: "nobody (unsigned)",
    }[stage.provenance_class]
    lines = [
        f"Capsule {stage.name} {safe(stage.manifest.version)}",
        f"  Signed by:  {safe(signer)}",
        f"  Digest:     {stage.content_digest}",
        f"  Operation:  {stage.phase.value}{_from_version(stage)}",
        "",
        *_asked_lines(stage.asks, stage.requests, again=stage.previous is not None),
    ]
    unknown = stage.manifest.unknown_capabilities
    if unknown:
        names = ", ".join(map(plain, unknown))
        lines += ["", f"Capabilities that this aos does not know, and does not grant: {names}"]
    return "\n".join(lines)


def _from_version(stage: Stage) -> str:
    return f" from {safe(stage.previous.version)}" if stage.previous is not None else ""


def _asked_lines(asks: Capabilities, requests: Sequence[str], *, again: bool) -> list[str]:
    if asks.is_empty() and not requests:
        return ["It asks for no more than it holds already" if again else "It asks for no permissions"]
    title = "It asks for, beyond what it holds already:" if again else "It asks for:"
    lines = [title]
    if not asks.is_empty():
        lines += permission_lines(asks)
    return [*lines, *(f"  - {plain(request)}" for request in requests)]


def obtain_consent(stage: Stage, answers: Answers, console: Console) -> bool:
    """Whether the install goes on by explicit approval (True) or needs none (False).

    Denied `approval-needed` where nobody can be asked or `--yes` is not enough, `approval-declined` on a no.
    """
    trusted = is_trusted(stage.provenance_class)
    widens = not stage.asks.is_empty() or bool(stage.requests) or stage.phase is Phase.DOWNGRADE
    decision = decide(trusted=trusted, widens=widens, answers=answers)
    if decision is Decision.SILENT:
        return False
    if decision is Decision.ASK:
        console.raw_error(describe_request(stage))
        if console.confirm("Install it?", default=False):
            return True
        raise Denied(
            "approval-declined",
            f"capsule `{stage.name}` was not installed",
            hint="nothing was changed",
        )
    console.note(describe_request(stage))
    if decision is Decision.REFUSED:
        raise _refused(stage, trusted=trusted, answers=answers)
    return True


def _refused(stage: Stage, *, trusted: bool, answers: Answers) -> Denied:
    flag = "--yes" if trusted else "--approve-untrusted"
    why = _why(stage) if trusted else f"it is {_class_word(stage)}"
    alone = " (`--yes` alone does not approve it)" if answers.yes and not trusted else ""
    return Denied(
        "approval-needed",
        f"capsule `{stage.name}` needs an approval, because {why}{alone}",
        hint=f"read what it asks for, then pass {flag} to approve {short_digest(stage.content_digest)}",
        name=stage.name,
        content_digest=stage.content_digest,
        signer=stage.signer,
        capabilities=stage.asks.to_json(),
    )


def _why(stage: Stage) -> str:
    if stage.asks.is_empty() and not stage.requests:
        return "it is older than the version that is installed"
    return "it asks for more than it holds"


def _class_word(stage: Stage) -> str:
    return "unsigned" if stage.provenance_class is Provenances.UNSIGNED else "signed by another key"
