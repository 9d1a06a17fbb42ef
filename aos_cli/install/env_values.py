"""The `[env]` values of an install: from the command line, the environment, a prompt or the default.

Order: `--var`, AOS_VAR_<KEY>, ASTRID_VAR_<KEY>, what is stored already, a prompt where a terminal is
there, the manifest's default.  What is still missing is one error that lists every key and how to supply
it (cases INS-08, INS-11, INS-12).  Values of secrets appear in no message. Source: seed capsule-forge
section 6, build-install.md 5.15.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aos_cli import environment
from aos_cli.console import Console, safe
from aos_cli.render.table import one_line
from aos_cli.suggest import did_you_mean, nearest_names
from aos_runtime.capsule.manifest import EnvRow, Manifest
from aos_runtime.capsule.manifest_values import RESERVED_ENV_KEY
from aos_runtime.errors import InvalidInput, Issue
from aos_runtime.names import EnvKey
from aos_runtime.store.env import EnvChanges

_NOT_WORD = re.compile(r"[^A-Za-z0-9_]")
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What is to be stored, and the stored keys that this version no longer declares (their values stay)."""

    changes: EnvChanges
    orphans: tuple[str, ...]


def parse_variables(pairs: Sequence[str]) -> dict[str, str]:
    """`--var KEY=VALUE` words as a table.  InvalidInput `env-variable` for a word without `=` or a key
    given twice.
    """
    found: dict[str, str] = {}
    issues = []
    for pair in pairs:
        key, mark, value = pair.partition("=")
        if not mark or not key:
            issues.append(
                Issue(message=f"--var {key[:40]!r}... is not KEY=VALUE" if mark else "--var needs KEY=VALUE")
            )
        elif key in found:
            issues.append(Issue(message=f"--var {key} is given twice"))
        found[key] = value
    if issues:
        raise InvalidInput(
            "env-variable", "a --var cannot be read", hint="write --var KEY=VALUE", issues=issues
        )
    return found


def variable_name(key: str) -> str:
    """The environment variable that supplies `key`: AOS_VAR_ and the key in capitals."""
    return environment.VARIABLE_PREFIX + _NOT_WORD.sub("_", key).upper()


def from_environment(key: str, environ: Mapping[str, str]) -> str | None:
    """What the environment supplies for `key`."""
    word = _NOT_WORD.sub("_", key).upper()
    for prefix in (environment.VARIABLE_PREFIX, environment.VARIABLE_PREFIX_FALLBACK):
        if prefix + word in environ:
            return environ[prefix + word]
    return None


def prompt_order(rows: Sequence[EnvRow]) -> list[EnvRow]:
    """Rows by name, but one whose options come after other answers follows those (a cycle stays as it is)."""
    waiting = sorted(rows, key=lambda row: row.key)
    ordered: list[EnvRow] = []
    while waiting:
        done = {row.key for row in ordered}
        known = {row.key for row in waiting} | done
        ready = [row for row in waiting if all(key in done for key in _after(row) if key in known)]
        chosen = ready[0] if ready else waiting[0]
        ordered.append(chosen)
        waiting.remove(chosen)
    return ordered


def _after(row: EnvRow) -> tuple[str, ...]:
    return tuple(row.options_from.after) if row.options_from is not None else ()


def collect_env(
    manifest: Manifest,
    *,
    variables: Mapping[str, str],
    environ: Mapping[str, str],
    stored: Mapping[str, object],
    stored_secrets: frozenset[str],
    ask: Callable[[EnvRow], str] | None,
) -> Collected:
    """Decide every declared value.  `ask` is None where nobody is there to answer.

    InvalidInput `env-undeclared`, `env-value` or `env-missing`, each with all its issues.
    """
    rows = [row for row in manifest.env if row.key != RESERVED_ENV_KEY]
    _check_declared(variables, rows)
    values: dict[EnvKey, object] = {}
    secrets: dict[EnvKey, str] = {}
    missing: list[EnvRow] = []
    issues: list[Issue] = []
    for row in prompt_order(rows):
        kept = row.key in stored_secrets if row.is_secret else row.key in stored
        text = variables.get(row.key, from_environment(row.key, environ))
        if text is None and kept:
            continue
        if text is None and ask is not None:
            text = ask(row)
        if text is None:
            _take_default(row, values, missing)
            continue
        _take(row, text, values, secrets, issues)
    _raise_for(issues, missing)
    declared = {row.key for row in manifest.env}
    orphans = tuple(sorted(key for key in {*stored, *stored_secrets} if key not in declared))
    return Collected(changes=EnvChanges(values=values, secrets=secrets), orphans=orphans)


def parse_settings(
    manifest: Manifest,
    settings: Sequence[str],
    removed: Sequence[str],
    *,
    environ: Mapping[str, str],
    ask: Callable[[EnvRow], str] | None,
) -> EnvChanges:
    """What `--set KEY=VALUE`, `--set KEY` and `--unset KEY` change; a bare key is looked up, then asked for.

    InvalidInput `env-undeclared`, `env-value` or `env-missing`.
    """
    rows = {row.key: row for row in manifest.env if row.key != RESERVED_ENV_KEY}
    given: dict[str, str | None] = {}
    for word in settings:
        key, mark, typed = word.partition("=")
        given[key] = typed if mark else from_environment(key, environ)
    _check_declared(dict.fromkeys((*given, *removed), ""), list(rows.values()))
    values: dict[EnvKey, object] = {}
    secrets: dict[EnvKey, str] = {}
    issues: list[Issue] = []
    for key, text in given.items():
        row = rows[EnvKey(key)]
        text = ask(row) if text is None and ask is not None else text
        if text is None:
            _raise_for([], [row])
            continue
        _take(row, text, values, secrets, issues)
    _raise_for(issues, [])
    return EnvChanges(values=values, secrets=secrets, removed=tuple(EnvKey(key) for key in removed))


def _check_declared(variables: Mapping[str, str], rows: Sequence[EnvRow]) -> None:
    declared = [row.key for row in rows]
    issues = [
        Issue(
            message=f"{key} is not declared by the capsule",
            hint=did_you_mean(nearest_names(key, declared)) or None,
        )
        for key in variables
        if key not in declared
    ]
    if issues:
        known = ", ".join(sorted(declared)) or "none"
        raise InvalidInput(
            "env-undeclared",
            "a --var names a key that the capsule does not declare",
            hint=f"declared keys: {known}",
            issues=issues,
        )


def _take(
    row: EnvRow,
    text: str,
    values: dict[EnvKey, object],
    secrets: dict[EnvKey, str],
    issues: list[Issue],
) -> None:
    """Put one given value where it belongs, or say why it does not fit."""
    try:
        value = convert(row, text)
    except ValueError as error:
        issues.append(Issue(message=f"{row.key}: {error}"))
        return
    if row.is_secret:
        secrets[row.key] = text
    else:
        values[row.key] = value


def _take_default(row: EnvRow, values: dict[EnvKey, object], missing: list[EnvRow]) -> None:
    """A default needs no storing, but for a choice: there the runtime takes only what was stored."""
    if row.default is None:
        missing.append(row)
    elif len(row.enum_values) > 1:
        values[row.key] = row.default


def convert(row: EnvRow, text: str) -> object:
    """A typed text as the value to store.  ValueError says what is wrong, without showing a secret."""
    if row.enum_values and text not in row.enum_values:
        shown = "the value" if row.is_secret else repr(text[:80])
        raise ValueError(f"{shown} is not one of {', '.join(row.enum_values)}")
    kind = row.type.lower()
    if kind == "array":
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind == "integer":
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{text[:80]!r} is not a whole number") from None
    return text


def _raise_for(issues: list[Issue], missing: list[EnvRow]) -> None:
    if issues:
        raise InvalidInput(
            "env-value", "a value does not fit its declaration", hint="correct the value", issues=issues
        )
    if missing:
        raise InvalidInput(
            "env-missing",
            "the capsule needs values that were not given",
            hint="give each with what stands behind it, or run it in a terminal to be asked",
            issues=[Issue(message=describe_missing(row)) for row in sorted(missing, key=lambda row: row.key)],
            missing=sorted(row.key for row in missing),
        )


def describe_missing(row: EnvRow) -> str:
    """What a missing key is and how to supply it; a secret is not to be put on a command line."""
    words = f" (one of {', '.join(row.enum_values)})" if row.enum_values else ""
    about = f": {row.request or row.description}" if row.request or row.description else ""
    if row.is_secret:
        return f"{row.key} (secret){about}; set {variable_name(row.key)}"
    return f"{row.key}{words}{about}; pass --var {row.key}=... or set {variable_name(row.key)}"


def make_asker(console: Console) -> Callable[[EnvRow], str] | None:
    """A function that asks on the terminal, None where nobody is there."""
    if not console.interactive:
        return None

    def ask(row: EnvRow) -> str:
        question = safe(one_line(row.request or row.description or f"Value of {row.key}"))
        if row.enum_values:
            question += f" ({', '.join(safe(value) for value in row.enum_values)})"
        default = None if row.default is None or row.is_secret else _shown(row.default)
        for _ in range(_ATTEMPTS):
            answer = console.ask(f"{question} [{row.key}]", hidden=row.is_secret, default=default)
            try:
                convert(row, answer)
            except ValueError as error:
                console.warn(safe(str(error)))
                continue
            if answer:
                return answer
        raise InvalidInput(
            "env-missing",
            f"no value was given for {row.key}",
            hint="run the install again, or supply it: " + describe_missing(row),
        )

    return ask


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return json.dumps(value)
