"""Typed reading of a manifest's tables, with a position for everything that is wrong.

A reader never stops at the first problem: it notes the issue, hands out the neutral value of the type and
goes on. What a key means is `manifest`'s business.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from aos_runtime.capsule.manifest_text import printable
from aos_runtime.capsule.toml_positions import KeyPath, KeyPositions, render_path
from aos_runtime.errors import Issue

MAX_UNSIGNED = 2**32 - 1


@dataclass(slots=True)
class Report:
    """The issues and warnings of one manifest, in the order of the file once `sorted_*` is asked."""

    file: str
    positions: KeyPositions
    issues: list[Issue] = field(default_factory=list)
    warnings: list[Issue] = field(default_factory=list)

    def error(self, path: KeyPath, message: str, *, hint: str | None = None) -> None:
        self.issues.append(self._issue(path, message, hint))

    def warn(self, path: KeyPath, message: str, *, hint: str | None = None) -> None:
        self.warnings.append(self._issue(path, message, hint))

    def _issue(self, path: KeyPath, message: str, hint: str | None) -> Issue:
        place = self.positions.find(path)
        return Issue(
            message=printable(message),
            file=self.file,
            line=place.line if place else None,
            column=place.column if place else None,
            hint=printable(hint) if hint else None,
        )


def in_file_order(issues: Collection[Issue]) -> tuple[Issue, ...]:
    """Issues by line and column, each once; those without a place first."""
    return tuple(sorted(dict.fromkeys(issues), key=lambda issue: (issue.line or 0, issue.column or 0)))


def nearest_name(name: str, known: Collection[str]) -> str | None:
    """The known name that `name` was probably meant to be."""
    matches = difflib.get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.7)
    return matches[0] if matches else None


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the manifest: its values, its path and where to report.

    `broken`: what stands there is no table, which has been noted; so nothing in it is missing.
    """

    report: Report
    values: Mapping[str, object]
    path: KeyPath
    broken: bool = False

    @property
    def name(self) -> str:
        return render_path(self.path)

    def at(self, key: str) -> KeyPath:
        return (*self.path, key)

    def error(self, key: str, message: str, *, hint: str | None = None) -> None:
        """Note that the value of `key` is wrong: `message` follows the key's full name."""
        self.report.error(self.at(key), f"`{render_path(self.at(key))}` {message}", hint=hint)

    def warn(self, key: str, message: str, *, hint: str | None = None) -> None:
        self.report.warn(self.at(key), f"`{render_path(self.at(key))}` {message}", hint=hint)

    def has(self, key: str) -> bool:
        return key in self.values

    def warn_unknown(
        self, known: Collection[str], *, suggest: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Warn of every key that is not in `known`, with the nearest known one; gives their names."""
        unknown = tuple(key for key in self.values if key not in known)
        for key in unknown:
            near = nearest_name(key, known if suggest is None else suggest)
            hint = f"did you mean `{near}`?" if near else None
            self.warn(key, "is not a known key, so it has no effect", hint=hint)
        return unknown

    def text(self, key: str, default: str = "") -> str:
        """An optional string."""
        value = self.optional_text(key)
        return default if value is None else value

    def required_text(self, key: str) -> str:
        """A string that must be there and not empty."""
        if self.broken:
            return ""
        if not self.has(key):
            at = self.path or self.at(key)
            self.report.error(at, f"`{render_path(self.at(key))}` is missing")
            return ""
        value = self.optional_text(key)
        if value == "":
            self.error(key, "is empty")
        return value or ""

    def optional_text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        self._wrong_type(key, "a string")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """An optional list of strings."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            self._wrong_type(key, "a list of strings")
            return ()
        return tuple(value)

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if isinstance(value, bool):
            return value
        self._wrong_type(key, "true or false")
        return False

    def unsigned(self, key: str) -> int | None:
        """An optional whole number of 0 to 2^32-1."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_UNSIGNED:
            self._wrong_type(key, f"a whole number from 0 to {MAX_UNSIGNED}")
            return None
        return value

    def section(self, key: str) -> Section:
        """An optional table; an empty one where it is absent."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            self._wrong_type(key, "a table")
            return Section(self.report, {}, self.at(key), broken=True)
        return Section(self.report, value, self.at(key))

    def sections(self, key: str) -> Iterator[Section]:
        """The tables of an optional array of tables."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self._wrong_type(key, f"an array of tables, each headed [[{render_path(self.at(key))}]]")
            return
        for index, entry in enumerate(value):
            yield Section(self.report, entry, (*self.at(key), index))

    def _wrong_type(self, key: str, wanted: str) -> None:
        self.error(key, f"must be {wanted}, not {_type_word(self.values[key])}")


def _type_word(value: object) -> str:
    if isinstance(value, int | float):
        return str(value).lower()
    if isinstance(value, list):
        return "a list of other values"
    if isinstance(value, dict):
        return "a table"
    return "a string" if isinstance(value, str) else "a date or time"
