"""The arguments of a tool call from what was typed, and their check against the tool's schema.

`--arg key=value` is converted by the type that the schema gives the key, `key:=json` is taken as JSON,
`--input` is the whole object; later ones win over `--input`.  Pure but for `read_input`, which reads a
file or stdin.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aos_cli.suggest import did_you_mean, nearest_names
from aos_runtime.errors import InvalidInput, Issue, NotFound

Schema = Mapping[str, Any]
_MAX_INPUT_BYTES = 1024 * 1024
_MAX_ISSUES = 20


def build_arguments(
    schema: Schema, *, pairs: Sequence[str], json_pairs: Sequence[str], whole: str | None
) -> dict[str, Any]:
    """The argument object.  InvalidInput `tool-arguments` carries every piece that cannot be read."""
    issues: list[Issue] = []
    arguments = dict(_parse_whole(whole)) if whole is not None else {}
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not mark or not key:
            issues.append(Issue(message=f"--arg {pair!r} is not key=value"))
            continue
        try:
            arguments[key] = coerce(text, _property(schema, key))
        except ValueError as error:
            issues.append(Issue(message=f"{key}: {error}"))
    for pair in json_pairs:
        key, mark, text = pair.partition(":=")
        if not mark or not key:
            issues.append(Issue(message=f"{pair!r} is not key:=json"))
            continue
        try:
            arguments[key] = json.loads(text)
        except ValueError as error:
            issues.append(Issue(message=f"{key}: not JSON: {error}"))
    if issues:
        raise _refused(issues)
    return arguments


def _parse_whole(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _refused([Issue(message=f"--input is not JSON: {error}")]) from None
    if not isinstance(value, dict):
        raise _refused([Issue(message="--input is not a JSON object")])
    return value


def _property(schema: Schema, key: str) -> Schema:
    properties = schema.get("properties")
    found = properties.get(key) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _types(schema: Schema) -> tuple[str, ...]:
    """The JSON types that a property allows, looking through `anyOf`/`oneOf` (schemars' optional fields)."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return tuple(item for item in kind if isinstance(item, str))
    found: list[str] = []
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            for option in options:
                if isinstance(option, Mapping):
                    found += _types(option)
    return tuple(found)


def coerce(text: str, schema: Schema) -> Any:
    """`text` as the first type of the schema that takes it; text where the schema says nothing."""
    kinds = _types(schema)
    if not kinds or kinds == ("string",):
        return text
    for kind in ("null", "boolean", "integer", "number", "array", "object"):
        if kind in kinds:
            value = _as_kind(text, kind)
            if value is not _NOTHING:
                return value
    if "string" in kinds:
        return text
    raise ValueError(f"{text!r} is not {' or '.join(kinds)}")


_NOTHING = object()


def _as_kind(text: str, kind: str) -> Any:
    if kind == "null":
        return None if text == "null" else _NOTHING
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower(), _NOTHING)
    if kind in ("integer", "number"):
        return _as_number(text, kind)
    try:
        value = json.loads(text)
    except ValueError:
        return _NOTHING
    fits = isinstance(value, list) if kind == "array" else isinstance(value, dict)
    return value if fits else _NOTHING


def _as_number(text: str, kind: str) -> Any:
    try:
        number = int(text) if kind == "integer" or text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return _NOTHING
    return number if math.isfinite(number) else _NOTHING


def check_arguments(arguments: Mapping[str, Any], schema: Schema) -> None:
    """Check the arguments against the tool's schema.  InvalidInput `tool-arguments` with all violations.

    A schema that is itself broken checks nothing: the tool will say what it wants.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError:
        return
    violations = sorted(
        Draft202012Validator(dict(schema)).iter_errors(dict(arguments)), key=lambda e: list(map(str, e.path))
    )
    issues = [Issue(message=_violation(error)) for error in violations[:_MAX_ISSUES]]
    issues += _unknown_keys(arguments, schema)
    if issues:
        raise _refused(issues)


def _violation(error: Any) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    message = str(error.message)[:400]
    return f"{where}: {message}" if where else message


def _unknown_keys(arguments: Mapping[str, Any], schema: Schema) -> list[Issue]:
    """Keys that the schema does not name but nearly names: a typo that most tools would silently ignore."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.get("additionalProperties") is False:
        return []
    issues = []
    for key in arguments:
        near = nearest_names(key, properties) if key not in properties else ()
        if near:
            issues.append(Issue(message=f"{key}: the tool has no such argument", hint=did_you_mean(near)))
    return issues


def _refused(issues: list[Issue]) -> InvalidInput:
    return InvalidInput(
        "tool-arguments",
        "the arguments do not fit the tool",
        hint="`aos tool show NAME` shows what it takes",
        issues=issues,
    )


def read_input(text: str) -> str:
    """What `--input` names: `@file`, `-` for stdin, or the text itself.  At most 1 MiB."""
    if text == "-":
        data = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1)
    elif text.startswith("@"):
        path = Path(text[1:])
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_INPUT_BYTES + 1)
        except FileNotFoundError:
            raise NotFound(
                "input-missing", f"no such file: {path}", hint="name a JSON file after the `@`"
            ) from None
    else:
        return text
    if len(data) > _MAX_INPUT_BYTES:
        raise InvalidInput(
            "input-too-large",
            f"the input is over {_MAX_INPUT_BYTES} bytes, more than a message may hold",
            hint="pass the name of a file to a tool that reads files",
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidInput(
            "tool-arguments", "the input is not UTF-8 text", hint="pass a JSON object in UTF-8"
        ) from None
