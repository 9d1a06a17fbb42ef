"""WIT references: what the `wit` of a `[publish]` or `[subscribe]` row names.

`@unicity-astrid/wit/<interface>/<type>` is a type of package `astrid:contracts`, in the text that the SDK
crate of the cargo graph ships.  This room reads that text for its names only and finds no file.
Source: architecture decision on WIT references; seed capsule-forge section 8; build-install.md 2.7, 4.6.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from aos_runtime.errors import Issue

REFERENCE_PREFIX = "@unicity-astrid/wit/"
OPAQUE = "opaque"
CONTRACTS_PACKAGE = "astrid:contracts"

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_INTERFACE = re.compile(r"\binterface\s+%?([a-z][a-z0-9-]*)\s*\{")
_DEFINITION = re.compile(r"(?<![\w%-])(?:record|variant|enum|flags|resource|type)\s+%?([a-z][a-z0-9-]*)")
_USE = re.compile(r"\buse\s+[^;{]*\.\{([^}]*)\}")
_NAME = re.compile(r"%?[a-z][a-z0-9-]*")
_REFERENCE = re.compile(r"([a-z0-9-]+)/([a-z0-9-]+)")

_ADDED_IN: Mapping[str, str] = {
    "hook/hook-event-request": "0.7.1",
    "session/delete-request": "0.7.2",
    "session/delete-response": "0.7.2",
    "session/get-meta-request": "0.7.2",
    "session/get-meta-response": "0.7.2",
    "session/list-request": "0.7.2",
    "session/list-response": "0.7.2",
    "session/search-request": "0.7.2",
    "session/search-response": "0.7.2",
    "session/search-result": "0.7.2",
    "session/session-event": "0.7.2",
    "session/session-event-kind": "0.7.2",
    "session/session-summary": "0.7.2",
    "session/update-request": "0.7.2",
    "session/update-response": "0.7.2",
}
"""Types that not every SDK of the 0.7 line ships, with the first version that does (read off the crates)."""


def interface_types(contracts_text: str) -> Mapping[str, frozenset[str]]:
    """The types of each interface of a WIT package, those that it uses from others among them."""
    text = _COMMENT.sub(" ", contracts_text)
    starts = list(_INTERFACE.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return {match[1]: _types(text[match.end() : end]) for match, end in zip(starts, ends, strict=True)}


def resolve_wit_reference(reference: str, contracts_text: str) -> Issue | None:
    """What is wrong with `reference`, with the name that was probably meant; None where it resolves.

    `opaque` and a bare name of the capsule's own `wit/` hold.  The issue has no place: it is the row's.
    """
    if _NAME.fullmatch(reference):
        return None
    path = reference.removeprefix(REFERENCE_PREFIX)
    known = interface_types(contracts_text)
    match = _REFERENCE.fullmatch(path) if path != reference else None
    if match is None:
        return Issue(
            message=f"the WIT reference {reference!r} is not of a known form",
            hint=_near_hint(path, known)
            or f'write {REFERENCE_PREFIX}<interface>/<type>, a name of your own wit/, or "{OPAQUE}"',
        )
    interface, name = match[1], match[2]
    if name in known.get(interface, ()):
        return None
    what = (
        f"interface `{interface}` has no type `{name}`"
        if interface in known
        else f"no interface `{interface}`"
    )
    return Issue(
        message=f"the WIT reference `{reference}` does not resolve: {what} in {CONTRACTS_PACKAGE}",
        hint=_near_hint(path, known),
    )


def _near_hint(path: str, known: Mapping[str, frozenset[str]]) -> str | None:
    if path in _ADDED_IN:
        return f"astrid-sdk {_ADDED_IN[path]} has it: raise the version in Cargo.toml"
    here = [f"{interface}/{name}" for interface, names in known.items() for name in names]
    near = difflib.get_close_matches(path, sorted({*here, *_ADDED_IN}), n=1, cutoff=0.75)
    if not near:
        return None
    since = "" if near[0] in here else f", which astrid-sdk {_ADDED_IN[near[0]]} has"
    return f"did you mean {REFERENCE_PREFIX}{near[0]}{since}?"


def _types(body: str) -> frozenset[str]:
    lists = (match[1].split(",") for match in _USE.finditer(body))
    used = (name.split(" as ")[-1].strip().lstrip("%") for names in lists for name in names)
    return frozenset(_DEFINITION.findall(body)).union(name for name in used if name)
