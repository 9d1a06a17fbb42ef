"""WIT references against the text of a contracts package."""

from __future__ import annotations

import pytest

from aos_runtime.capsule.contracts import interface_types, resolve_wit_reference

CONTRACTS = """\
// package other:thing@1.0.0;  record in-a-comment { }
package astrid:contracts@1.0.0;

/// interface not-me { record nor-me {} }
interface types {
    record tool-call { call-id: string, resource-type: string }
    record tool-call-result { content: string }
    enum message-role { user, tool, }
    variant message-content { text(string) }
    /* type gone = string; */
    flags bits { a }
    type alias-name = list<u8>;
    resource handle;
}

interface tool {
    use types.{tool-call, tool-call-result as outcome};
    record describe-request { }
    record describe-response { tools: list<string> }
}

interface session { record get-messages-request { } }
"""
PREFIX = "@unicity-astrid/wit/"
FORM = f'write {PREFIX}<interface>/<type>, a name of your own wit/, or "opaque"'


def test_the_types_of_each_interface() -> None:
    assert interface_types(CONTRACTS) == {
        "types": frozenset(
            (
                "tool-call",
                "tool-call-result",
                "message-role",
                "message-content",
                "bits",
                "alias-name",
                "handle",
            )
        ),
        "tool": frozenset(("tool-call", "outcome", "describe-request", "describe-response")),
        "session": frozenset(("get-messages-request",)),
    }


@pytest.mark.parametrize(
    "reference",
    [
        "opaque",
        "local-record",
        f"{PREFIX}types/tool-call",
        f"{PREFIX}types/tool-call-result",
        f"{PREFIX}tool/describe-request",
        f"{PREFIX}tool/describe-response",
        f"{PREFIX}types/handle",
    ],
)
def test_references_that_resolve(reference: str) -> None:
    assert resolve_wit_reference(reference, CONTRACTS) is None


@pytest.mark.parametrize(
    ("reference", "what", "hint"),
    [
        (
            "types/tool-cal",
            "interface `types` has no type `tool-cal`",
            f"did you mean {PREFIX}types/tool-call?",
        ),
        ("type/tool-call", "no interface `type`", f"did you mean {PREFIX}types/tool-call?"),
        (
            "tool/decribe-request",
            "interface `tool` has no type `decribe-request`",
            f"did you mean {PREFIX}tool/describe-request?",
        ),
        ("types/gone", "interface `types` has no type `gone`", None),
        ("nowhere/at-all-alike", "no interface `nowhere`", None),
        (
            "session/list-request",
            "interface `session` has no type `list-request`",
            "astrid-sdk 0.7.2 has it: raise the version in Cargo.toml",
        ),
        (
            "session/search-results",
            "interface `session` has no type `search-results`",
            f"did you mean {PREFIX}session/search-result, which astrid-sdk 0.7.2 has?",
        ),
    ],
)
def test_references_that_do_not(reference: str, what: str, hint: str | None) -> None:
    issue = resolve_wit_reference(PREFIX + reference, CONTRACTS)
    assert issue is not None
    assert issue.message == (
        f"the WIT reference `{PREFIX}{reference}` does not resolve: {what} in astrid:contracts"
    )
    assert issue.hint == hint


@pytest.mark.parametrize(
    "name",
    ["delete-request", "delete-response", "get-meta-request", "get-meta-response", "list-request",
     "list-response", "search-request", "search-response", "search-result", "session-event",
     "session-event-kind", "session-summary", "update-request", "update-response"],
)  # fmt: skip
def test_types_of_a_later_sdk_are_named_with_it(name: str) -> None:
    issue = resolve_wit_reference(f"{PREFIX}session/{name}", CONTRACTS)
    assert issue is not None
    assert issue.hint == "astrid-sdk 0.7.2 has it: raise the version in Cargo.toml"
    hook = resolve_wit_reference(f"{PREFIX}hook/hook-event-request", CONTRACTS)
    assert hook is not None
    assert hook.hint == "astrid-sdk 0.7.1 has it: raise the version in Cargo.toml"


def test_names_that_wit_must_escape() -> None:
    text = "interface %use { record %type { } use other.{%flags, %enum as %variant}; }"
    assert interface_types(text) == {"use": frozenset(("type", "flags", "variant"))}


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("TODO", FORM),
        ("", FORM),
        ("tool/describe-request", f"did you mean {PREFIX}tool/describe-request?"),
        (f"{PREFIX}tool", FORM),
        (f"{PREFIX}a/b/c", FORM),
        ("types.tool-call", f"did you mean {PREFIX}types/tool-call?"),
        ("@other/wit/types/tool-call", FORM),
    ],
)
def test_references_of_no_known_form(reference: str, hint: str) -> None:
    issue = resolve_wit_reference(reference, CONTRACTS)
    assert issue is not None
    assert (issue.message, issue.hint) == (f"the WIT reference {reference!r} is not of a known form", hint)
