"""errors: data that every edge can project."""

from __future__ import annotations

import pytest

from aos_runtime import errors
from aos_runtime.errors import AosError, InvalidInput, Issue


def test_an_error_keeps_code_sentence_hint_and_context() -> None:
    error = AosError("a-code", "it went wrong", hint="do this", path="/x")
    assert (str(error), error.code, error.hint, error.context) == (
        "it went wrong",
        "a-code",
        "do this",
        {"path": "/x"},
    )


def test_invalid_input_carries_every_issue() -> None:
    issues = [Issue(message="one", line=1), Issue(message="two")]
    assert InvalidInput("c", "m", hint="h", issues=iter(issues)).issues == tuple(issues)


@pytest.mark.parametrize(
    ("issue", "text"),
    [
        (Issue(message="m"), "m"),
        (Issue(message="m", file="f"), "f: m"),
        (Issue(message="m", file="f", line=2), "f:2: m"),
        (Issue(message="m", file="f", line=2, column=3), "f:2:3: m"),
    ],
)
def test_an_issue_shows_the_place_as_far_as_it_is_known(issue: Issue, text: str) -> None:
    assert issue.render() == text


def test_the_families_are_the_documented_nine() -> None:
    families = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert families - {"AosError", "Issue"} >= {
        "InvalidInput",
        "NotFound",
        "Conflict",
        "Denied",
        "Corrupt",
        "BuildFailed",
        "Unavailable",
        "LimitExceeded",
        "PeerFault",
    }
    assert all(issubclass(getattr(errors, name), AosError) for name in ("NotFound", "Conflict", "PeerFault"))
