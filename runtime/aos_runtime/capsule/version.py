"""Semantic versions and Cargo's requirement grammar.

Decides only: no version of anything is known here.
Source: build-install.md 4.2 (`astrid-version`), 4.5 (imports and exports); semver.org 2.0.0; Cargo's
"Specifying Dependencies".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import total_ordering

from aos_runtime.errors import InvalidInput

MAX_TEXT_CHARS = 256
MAX_NUMBER = 2**64 - 1
MAX_COMPARATORS = 32

_NUMBER = r"0|[1-9][0-9]{0,19}"
_WORD = r"[0-9A-Za-z-]+"
_SUFFIX = rf"(?:-(?P<pre>{_WORD}(?:\.{_WORD})*))?(?:\+(?P<build>{_WORD}(?:\.{_WORD})*))?"
_VERSION = re.compile(rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER}){_SUFFIX}")
_COMPARATOR = re.compile(
    rf"(?P<op>=|>=|<=|>|<|~|\^)?\ *(?P<major>{_NUMBER})"
    rf"(?:\.(?P<minor>{_NUMBER}|[*xX])(?:\.(?P<patch>{_NUMBER}|[*xX]){_SUFFIX})?)?"
)
_WILDCARDS = frozenset("*xX")


@total_ordering
@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A full semantic version.  Build metadata takes no part in equality or order."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()
    build: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> Version:
        """Three numeric parts with optional `-pre` and `+build`.  InvalidInput `version` otherwise."""
        match = _VERSION.fullmatch(text) if len(text) <= MAX_TEXT_CHARS else None
        if match is None:
            raise _bad_version(text)
        pre = _pre_parts(match["pre"])
        numbers = [int(match[part]) for part in ("major", "minor", "patch")]
        if pre is None or max(numbers) > MAX_NUMBER:
            raise _bad_version(text)
        major, minor, patch = numbers
        return cls(major=major, minor=minor, patch=patch, pre=pre, build=match["build"] or "")

    @property
    def release(self) -> Version:
        """The same version without its pre-release and build parts."""
        return Version(major=self.major, minor=self.minor, patch=self.patch)

    @property
    def triple(self) -> tuple[int, int, int]:
        return (self.major, self.minor, self.patch)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return _order(self) < _order(other)

    def __str__(self) -> str:
        pre = f"-{'.'.join(self.pre)}" if self.pre else ""
        build = f"+{self.build}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{build}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparator:
    """One `op version` of a requirement; parts that were not written are None."""

    op: str
    major: int
    minor: int | None
    patch: int | None
    pre: tuple[str, ...] = ()

    @property
    def lowest(self) -> Version:
        """The version that the written parts name, zero for those that were left out."""
        return _version(self.major, self.minor or 0, self.patch or 0, self.pre)

    def admits(self, version: Version) -> bool:
        """Whether `version` lies in this comparator's range (pre-release gating is the requirement's)."""
        low, high = self._range()
        if low is not None and version < low:
            return False
        return high is None or version < high

    def _range(self) -> tuple[Version | None, Version | None]:
        """The half-open range [low, high) of this comparator."""
        exact = self.lowest
        below = exact if self.patch is not None else _floor(self.major, self.minor or 0)
        after = self._after()
        return {
            "=": (exact, after),
            ">": (after, None),
            ">=": (exact, None),
            "<": (None, below),
            "<=": (None, after),
            "~": (exact, _floor(self.major + 1) if self.minor is None else self._next_minor()),
            "^": (exact, self._next_incompatible()),
        }[self.op]

    def _after(self) -> Version:
        """The first version above everything that the written parts denote."""
        if self.minor is None:
            return _floor(self.major + 1)
        if self.patch is None:
            return self._next_minor()
        if self.pre:
            return _version(self.major, self.minor, self.patch, (*self.pre, "0"))
        return _floor(self.major, self.minor, self.patch + 1)

    def _next_minor(self) -> Version:
        return _floor(self.major, (self.minor or 0) + 1)

    def _next_incompatible(self) -> Version:
        if self.major > 0 or self.minor is None:
            return _floor(self.major + 1)
        if self.minor > 0 or self.patch is None:
            return self._next_minor()
        return _floor(0, 0, self.patch + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A comma list of comparators, all of which must admit a version.  No comparator (`*`) admits any."""

    text: str
    comparators: tuple[Comparator, ...]

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Cargo's grammar: `^ ~ = > >= < <=`, partial versions, `*`, comma lists; bare means `^`.

        InvalidInput `version-requirement` otherwise.
        """
        stripped = text.strip()
        if len(text) > MAX_TEXT_CHARS or not stripped:
            raise _bad_requirement(text)
        if stripped in _WILDCARDS:
            return cls(text=stripped, comparators=())
        parts = [part.strip() for part in stripped.split(",")]
        if len(parts) > MAX_COMPARATORS:
            raise _bad_requirement(text)
        comparators = tuple(_parse_comparator(part, text) for part in parts)
        return cls(text=", ".join(parts), comparators=comparators)

    def matches(self, version: Version) -> bool:
        """Whether `version` satisfies every comparator.

        A requirement without a pre-release part compares the release triple only, so that a local pre-release
        of the right triple is accepted.  One with a pre-release part follows Cargo: a pre-release version is
        admitted only where a comparator names a pre-release of the same triple.
        """
        named = [one for one in self.comparators if one.pre]
        if not named:
            version = version.release
        elif version.pre and not any((one.major, one.minor, one.patch) == version.triple for one in named):
            return False
        return all(one.admits(version) for one in self.comparators)

    def __str__(self) -> str:
        return self.text


def _parse_comparator(part: str, whole: str) -> Comparator:
    match = _COMPARATOR.fullmatch(part)
    if match is None:
        raise _bad_requirement(whole)
    minor, patch = (
        None if text is None or text in _WILDCARDS else int(text) for text in (match["minor"], match["patch"])
    )
    pre = _pre_parts(match["pre"])
    major = int(match["major"])
    if pre is None or (minor is None and patch is not None) or (patch is None and match["pre"]):
        raise _bad_requirement(whole)
    if any(part is not None and part > MAX_NUMBER for part in (major, minor, patch)):
        raise _bad_requirement(whole)
    is_wild = not _WILDCARDS.isdisjoint((match["minor"], match["patch"]))
    op = match["op"] or ("=" if is_wild else "^")
    return Comparator(op=op, major=major, minor=minor, patch=patch, pre=pre)


def _pre_parts(text: str | None) -> tuple[str, ...] | None:
    """The identifiers of a pre-release, () for none; None where a numeric one has a leading zero."""
    if not text:
        return ()
    parts = tuple(text.split("."))
    if any(part.isdigit() and len(part) > 1 and part[0] == "0" for part in parts):
        return None
    return parts


def _version(major: int, minor: int, patch: int, pre: tuple[str, ...]) -> Version:
    return Version(major=major, minor=minor, patch=patch, pre=pre)


def _floor(major: int, minor: int = 0, patch: int = 0) -> Version:
    """The lowest version of a triple: its first pre-release."""
    return _version(major, minor, patch, ("0",))


def _order(version: Version) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
    """Semver 2.0.0 item 11: numeric identifiers below alphanumeric ones, a pre-release below its release."""
    keys = tuple((False, int(part), "") if part.isdigit() else (True, 0, part) for part in version.pre)
    return (version.triple, not version.pre, keys)


def _bad_version(text: str) -> InvalidInput:
    return InvalidInput(
        "version",
        f"{text[:80]!r} is not a semantic version",
        hint="write three numbers, MAJOR.MINOR.PATCH, with an optional -pre and +build part, as in 0.1.0",
        version=text[:80],
    )


def _bad_requirement(text: str) -> InvalidInput:
    return InvalidInput(
        "version-requirement",
        f"{text[:80]!r} is not a version requirement",
        hint='write a requirement as Cargo does, such as ">=0.7.0", "^1.2" or ">=1.0, <2.0"',
        requirement=text[:80],
    )
