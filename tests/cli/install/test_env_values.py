"""aos_cli.install.env_values: where values come from (cases INS-08, INS-11, INS-12, CPL-07)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from aos_cli.install.env_values import Collected, collect_env, parse_variables, prompt_order, variable_name
from aos_runtime.capsule.manifest import EnvRow, Manifest, parse_manifest
from aos_runtime.errors import InvalidInput
from aos_runtime.store.env import EnvChanges
from tests.support.capsules import manifest_text

ENV = """
[env]
api_key = { type = "secret", request = "Key of the service" }
region = { type = "text", default = "us" }
mode = { type = "select", enum_values = ["fast", "slow"] }
tags = { type = "array", default = [] }
title = { type = "text", description = "A title" }
"""


def manifest(env: str = ENV) -> Manifest:
    return parse_manifest(manifest_text(extra=env).encode())


def collect(
    *,
    variables: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    stored: Mapping[str, object] | None = None,
    secrets: frozenset[str] = frozenset(),
    ask: Callable[[EnvRow], str] | None = None,
    env: str = ENV,
) -> Collected:
    return collect_env(
        manifest(env),
        variables=variables or {},
        environ=environ or {},
        stored=stored or {},
        stored_secrets=secrets,
        ask=ask,
    )


def test_ins_11_every_missing_key_is_listed_with_what_supplies_it() -> None:
    with pytest.raises(InvalidInput) as refused:
        collect()
    error = refused.value
    assert (error.code, error.message) == ("env-missing", "the capsule needs values that were not given")
    assert [issue.message for issue in error.issues] == [
        "api_key (secret): Key of the service; set AOS_VAR_API_KEY",
        "mode (one of fast, slow); pass --var mode=... or set AOS_VAR_MODE",
        "title: A title; pass --var title=... or set AOS_VAR_TITLE",
    ]
    assert error.context == {"missing": ["api_key", "mode", "title"]}


def test_the_order_of_the_sources() -> None:
    given = {
        "AOS_VAR_MODE": "slow",
        "ASTRID_VAR_MODE": "fast",
        "ASTRID_VAR_TITLE": "t",
        "AOS_VAR_API_KEY": "k",
    }
    found = collect(variables={"title": "option"}, environ=given)
    assert found.changes == EnvChanges(values={"mode": "slow", "title": "option"}, secrets={"api_key": "k"})


def test_ins_08_what_is_stored_stays_and_only_the_new_key_is_asked_for() -> None:
    asked: list[str] = []

    def ask(row: EnvRow) -> str:
        asked.append(row.key)
        return "new"

    found = collect(
        stored={"region": "eu-west-1", "mode": "fast", "tags": [], "gone": "x"},
        secrets=frozenset({"api_key"}),
        ask=ask,
    )
    assert asked == ["title"]
    assert found == Collected(changes=EnvChanges(values={"title": "new"}), orphans=("gone",))


def test_a_variable_changes_a_stored_value() -> None:
    stored = {"region": "eu", "mode": "fast", "tags": [], "title": "t"}
    found = collect(stored=stored, secrets=frozenset({"api_key"}), variables={"region": "us-2"})
    assert found.changes == EnvChanges(values={"region": "us-2"})


def test_values_have_the_types_of_their_rows() -> None:
    env = '[env]\na = { type = "array" }\nn = { type = "integer" }\n'
    found = collect(env=env, variables={"a": "x, y,,z", "n": "-3"})
    assert found.changes.values == {"a": ["x", "y", "z"], "n": -3}


def test_values_that_do_not_fit_are_all_said_and_a_secret_is_not_shown() -> None:
    env = '[env]\npin = { type = "secret", enum_values = ["1", "2"] }\nn = { type = "integer" }\n'
    with pytest.raises(InvalidInput) as refused:
        collect(env=env, variables={"pin": "hunter2", "n": "many"})
    assert [issue.message for issue in refused.value.issues] == [
        "n: 'many' is not a whole number",
        "pin: the value is not one of 1, 2",
    ]


def test_a_key_that_is_not_declared_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInput) as refused:
        collect(variables={"regio": "x"})
    assert refused.value.code == "env-undeclared"
    assert [(issue.message, issue.hint) for issue in refused.value.issues] == [
        ("regio is not declared by the capsule", "did you mean `region`?")
    ]


def test_a_default_among_choices_is_stored_since_the_runtime_takes_no_other() -> None:
    env = '[env]\nm = { type = "select", enum_values = ["a", "b"], default = "b" }\n'
    assert collect(env=env).changes == EnvChanges(values={"m": "b"})


@pytest.mark.parametrize(
    ("pair", "value"),
    [("T=-abc", "-abc"), ("T=a b", "a b"), ("T=a=b", "a=b"), ("T=a\nb", "a\nb"), ("T=", "")],
)
def test_cpl_07_a_value_is_taken_as_data(pair: str, value: str) -> None:
    assert parse_variables([pair]) == {"T": value}


def test_pairs_that_cannot_be_read() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_variables(["novalue", "A=1", "A=2"])
    assert [issue.message for issue in refused.value.issues] == [
        "--var needs KEY=VALUE",
        "--var A is given twice",
    ]


def test_names_of_variables() -> None:
    assert variable_name("api-key.v2") == "AOS_VAR_API_KEY_V2"


def test_questions_follow_the_answers_that_they_need() -> None:
    env = (
        '[env]\na_model = { type = "text", options_from = { http = "x", after = ["z_url"] } }\n'
        'b = { type = "text" }\nz_url = { type = "text" }\n'
    )
    assert [row.key for row in prompt_order(manifest(env).env)] == ["b", "z_url", "a_model"]
