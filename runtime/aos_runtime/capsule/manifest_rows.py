"""Reading `[publish]`, `[subscribe]` and `[env]`.

The keys of the first two are the bus ACL and the dispatch table; nothing of them is dropped quietly.
Source: build-install.md 4.6 and 4.7; case MAN-14.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator

from aos_runtime.capsule.manifest_reader import Section
from aos_runtime.capsule.manifest_values import (
    DEFAULT_PRIORITY,
    RESERVED_ENV_KEY,
    EnvRow,
    OptionsFrom,
    PublishRow,
    SubscribeRow,
)
from aos_runtime.capsule.topics import has_valid_segments, topic_problem
from aos_runtime.errors import InvalidInput
from aos_runtime.names import EnvKey, parse_env_key

PIN_KEYS = ("version", "tag", "rev", "branch", "path")
PUBLISH_KEYS = ("wit", *PIN_KEYS, "fanout")
SUBSCRIBE_KEYS = ("wit", *PIN_KEYS, "handler", "priority")
ENV_KEYS = (
    "type",
    "request",
    "description",
    "default",
    "enum_values",
    "placeholder",
    "options_from",
    "options-from",
    "scope",
)
ENV_TYPES = ("text", "secret", "select", "array", "string", "integer")
OPTIONS_KEYS = ("http", "bearer", "select", "after")

_INT64 = range(-(2**63), 2**63)


def read_publish(root: Section) -> tuple[PublishRow, ...]:
    """`[publish]`: a topic pattern and the reference to its payload type."""
    rows = []
    for topic, row in _topic_rows(root.section("publish"), PUBLISH_KEYS):
        row.flag("fanout")
        rows.append(PublishRow(topic=topic, wit=row.text("wit")))
    return tuple(rows)


def read_subscribe(root: Section) -> tuple[SubscribeRow, ...]:
    """`[subscribe]`: as publish, and `handler` with its `priority`."""
    return tuple(
        SubscribeRow(
            topic=topic, wit=row.text("wit"), handler=_read_handler(row), priority=_read_priority(row)
        )
        for topic, row in _topic_rows(root.section("subscribe"), SUBSCRIBE_KEYS)
    )


def read_env(root: Section) -> tuple[EnvRow, ...]:
    """`[env]`: one row per key, in the file's order."""
    env = root.section("env")
    rows = []
    for name in env.values:
        key = _read_env_key(env, name)
        row = env.section(name)
        row.warn_unknown(ENV_KEYS)
        if row.has("scope"):
            row.warn("scope", "is the operator's to set, so it has no effect here")
        rows.append(_read_env_row(row, key))
    return tuple(rows)


def _topic_rows(table: Section, known: tuple[str, ...]) -> Iterator[tuple[str, Section]]:
    """Each topic with its row as a table; the short form `topic = "wit"` becomes `{ wit = "wit" }`."""
    for topic, value in table.values.items():
        if isinstance(value, str):
            row = Section(table.report, {"wit": value}, table.at(topic))
        elif not isinstance(value, dict):
            table.error(topic, 'must be a WIT reference or a table such as { wit = "opaque" }')
            continue
        elif (unquoted := _unquoted_topic(topic, value)) is not None:
            table.error(
                topic, f"is a table, not a topic: `{unquoted}` needs quotes", hint=f'write "{unquoted}"'
            )
            continue
        else:
            row = table.section(topic)
            row.warn_unknown(known)
            _check_reference(row)
        _check_topic(table, topic)
        yield topic, row


def _unquoted_topic(topic: str, value: object) -> str | None:
    """The dotted topic that TOML took apart because it was written without quotes."""
    path = topic
    while isinstance(value, dict) and "wit" not in value and len(value) == 1:
        (key, value), *_ = value.items()
        if not isinstance(value, dict | str):
            return None
        path = f"{path}.{key}"
        if isinstance(value, str):
            return path
    return path if isinstance(value, dict) and "wit" in value and path != topic else None


def _check_topic(table: Section, topic: str) -> None:
    if any(unicodedata.category(char) == "Cc" for char in topic):
        table.error(topic, "has a control character")
    elif not has_valid_segments(topic):
        table.error(topic, "has an empty segment", hint="topics are words joined by single dots")
    elif (problem := topic_problem(topic)) is not None:
        table.warn(topic, f"can never match: {problem}")
    elif any("*" in segment and segment != "*" for segment in topic.split(".")):
        table.warn(topic, "matches its `*` literally", hint="`*` stands for a whole segment between dots")


def _check_reference(row: Section) -> None:
    if not row.has("wit"):
        row.report.error(
            row.path, f"`{row.name}` has no `wit`", hint='add wit = "opaque" where the type is not known'
        )
    row.text("wit")
    pins = [key for key in PIN_KEYS if row.has(key)]
    for key in pins:
        row.text(key)
    if len(pins) > 1:
        row.error(pins[1], f"cannot stand beside `{pins[0]}`", hint=f"keep one of {', '.join(PIN_KEYS)}")


def _read_handler(row: Section) -> str | None:
    return row.required_text("handler") or None if row.has("handler") else None


def _read_priority(row: Section) -> int:
    priority = row.unsigned("priority")
    if priority is not None and not row.has("handler"):
        row.error(
            "priority", "orders handlers, and this row has none", hint="add `handler`, or remove `priority`"
        )
    return DEFAULT_PRIORITY if priority is None else priority


def _read_env_key(env: Section, name: str) -> EnvKey:
    if name == RESERVED_ENV_KEY:
        env.warn(name, "is reserved, so it has no effect")
    try:
        return parse_env_key(name)
    except InvalidInput as error:
        env.error(name, f"is an {error.message}", hint=error.hint)
        return EnvKey("")


def _read_env_row(row: Section, key: EnvKey) -> EnvRow:
    kind = row.required_text("type")
    choices = row.texts("enum_values")
    options = _read_options(row)
    default = row.values.get("default")
    if kind and kind.lower() not in ENV_TYPES:
        row.warn(
            "type", f"is {kind!r}, which is taken as text", hint=f"the types are {', '.join(ENV_TYPES[:4])}"
        )
    if kind == "select" and not choices and options is None:
        row.warn("type", "is select, but there is nothing to select from", hint="add enum_values")
    if not _is_json(default):
        row.error(
            "default", "must be a string, a finite 64-bit number, true or false, or a list or table of them"
        )
        default = None
    elif default is not None and choices and default not in choices:
        row.warn("default", "is not one of `enum_values`", hint=f"use one of {', '.join(choices[:20])}")
    return EnvRow(
        key=key,
        type=kind,
        request=row.optional_text("request"),
        description=row.optional_text("description"),
        default=default,
        enum_values=choices,
        placeholder=row.optional_text("placeholder"),
        options_from=options,
    )


def _read_options(row: Section) -> OptionsFrom | None:
    key = "options-from" if row.has("options-from") else "options_from"
    if row.has("options-from") and row.has("options_from"):
        row.error("options-from", "and `options_from` are two names of one key", hint="keep `options_from`")
    if not row.has(key):
        return None
    options = row.section(key)
    options.warn_unknown(OPTIONS_KEYS)
    return OptionsFrom(
        http=options.required_text("http"),
        bearer=options.optional_text("bearer"),
        select=options.text("select", "data[].id"),
        after=options.texts("after"),
    )


def _is_json(value: object) -> bool:
    """Whether a TOML value (nesting is bounded by the scanner) can be sent as JSON to any reader."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value in _INT64
    if isinstance(value, list):
        return all(_is_json(entry) for entry in value)
    if isinstance(value, dict):
        return all(_is_json(entry) for entry in value.values())
    return value is None or isinstance(value, str)
