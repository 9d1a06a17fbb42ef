"""Semantic versions and Cargo's requirements."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.version import Requirement, Version
from aos_runtime.errors import InvalidInput

NUMBERS = st.integers(min_value=0, max_value=3)
PRE = st.sampled_from(["", "-0", "-1", "-a", "-a.0", "-a.1", "-rc.2", "-rc.10"])
VERSIONS = st.builds("{}.{}.{}{}".format, NUMBERS, NUMBERS, NUMBERS, PRE)


@pytest.mark.parametrize("text", ["0.1.0", "2026.10.1", "1.2.3-rc.1", "1.2.3-0a.b+build.007", "1.0.0+x"])
def test_versions_render_as_written(text: str) -> None:
    assert str(Version.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "1.2.3.4",
        "01.2.3",
        "1.02.3",
        "v1.2.3",
        " 1.2.3",
        "1.2.3 ",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3+",
        "1.2.x",
        "1.2.3-a..b",
        "1.2.3-ä",
        f"{2**64}.0.0",
        "1.2.3-" + "a" * 300,
        "1.2.3\n",
        "१.0.0",
    ],
)
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Version.parse(text)
    assert caught.value.code == "version"


def test_the_bounds_of_a_version_and_a_requirement() -> None:
    longest = "1.2.3-" + "a" * 250
    assert str(Version.parse(longest)) == longest
    assert Version.parse(f"{2**64 - 1}.{2**64 - 1}.{2**64 - 1}").triple == (2**64 - 1,) * 3
    assert Requirement.parse("1" + " " * 255).text == "1"
    assert len(Requirement.parse(",".join(["1"] * 32)).comparators) == 32
    assert Requirement.parse(f"{2**64 - 1}.{2**64 - 1}.{2**64 - 1}").comparators[0].patch == 2**64 - 1
    for text in (longest + "a", f"0.{2**64}.0", f"0.0.{2**64}"):
        with pytest.raises(InvalidInput):
            Version.parse(text)
    for text in ("1" + " " * 256, f"0.{2**64}", f"0.0.{2**64}"):
        with pytest.raises(InvalidInput):
            Requirement.parse(text)


@pytest.mark.parametrize(
    ("parse", "code", "what", "key"),
    [
        (Version.parse, "version", "a semantic version", "version"),
        (Requirement.parse, "version-requirement", "a version requirement", "requirement"),
    ],
)
def test_a_refusal_shows_80_characters(
    parse: Callable[[str], object], code: str, what: str, key: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse("x" * 81)
    error = caught.value
    assert (error.code, error.message) == (code, f"'{'x' * 80}' is not {what}")
    assert error.context == {key: "x" * 80}


def test_the_parts_of_a_version() -> None:
    version = Version.parse("1.2.3-rc.1+b.5")
    assert (version.pre, version.build, version.triple) == (("rc", "1"), "b.5", (1, 2, 3))
    assert version.release == Version.parse("1.2.3")
    assert str(Requirement.parse(" >=1 ,<2")) == ">=1, <2"


def test_versions_are_ordered_as_semver_says() -> None:
    texts = (
        "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0"
    )
    versions = [Version.parse(text) for text in texts.split()]
    assert all(low < high for low, high in itertools.pairwise(versions))
    assert sorted(versions) == versions


def test_build_metadata_takes_no_part() -> None:
    assert Version.parse("1.0.0+a") == Version.parse("1.0.0+b")
    assert hash(Version.parse("1.0.0+a")) == hash(Version.parse("1.0.0"))


def test_a_version_is_not_compared_with_text() -> None:
    with pytest.raises(TypeError):
        assert Version.parse("1.0.0") < "1.0.0"


# requirement, versions that match, versions that do not (Cargo: Specifying Dependencies)
REQUIREMENTS = [
    ("^1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0 0.9.0"),
    ("1.2.3", "1.2.3 1.9.0", "1.2.2 2.0.0"),
    ("^1.2", "1.2.0 1.9.9", "1.1.9 2.0.0"),
    ("^1", "1.0.0 1.9.9", "0.9.9 2.0.0"),
    ("^0.2.3", "0.2.3 0.2.9", "0.2.2 0.3.0 1.0.0"),
    ("^0.0.3", "0.0.3", "0.0.2 0.0.4 0.1.0"),
    ("^0.0", "0.0.0 0.0.9", "0.1.0"),
    ("^0.1.2", "0.1.2 0.1.9", "0.1.1 0.2.0"),
    ("^0", "0.0.0 0.9.9", "1.0.0"),
    ("0.7", "0.7.0 0.7.9", "0.8.0 2026.10.1"),
    ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
    ("~1.2", "1.2.0 1.2.9", "1.1.9 1.3.0"),
    ("~1", "1.0.0 1.9.9", "0.9.9 2.0.0"),
    ("*", "0.0.0 9.9.9", ""),
    ("x", "0.0.0 9.9.9", ""),
    ("1.*", "1.0.0 1.9.9", "0.9.9 2.0.0"),
    ("1.2.*", "1.2.0 1.2.9", "1.1.9 1.3.0"),
    ("1.x", "1.5.0", "2.0.0"),
    ("1.*.*", "1.5.0", "2.0.0"),
    ("=1.2.3", "1.2.3 1.2.3+build", "1.2.2 1.2.4"),
    ("=1.2", "1.2.0 1.2.9", "1.1.9 1.3.0"),
    ("=1", "1.0.0 1.9.9", "0.9.9 2.0.0"),
    (">1.2.3", "1.2.4 2.0.0", "1.2.3 1.0.0"),
    (">1.2", "1.3.0", "1.2.0 1.2.9"),
    (">1", "2.0.0", "1.0.0 1.9.9"),
    (">=0.7.0", "0.7.0 2026.10.1 0.7.0-dev.3", "0.6.9"),
    (">=1.2", "1.2.0 1.3.0", "1.1.9"),
    ("<1.2.3", "1.2.2 0.0.0", "1.2.3 2.0.0"),
    ("<1.2", "1.1.9", "1.2.0"),
    ("<=1.2.3", "1.2.3 1.0.0", "1.2.4"),
    ("<=1.2", "1.2.9", "1.3.0"),
    ("<=1", "1.9.9", "2.0.0"),
    ("^0.1", "0.1.0 0.1.9", "0.2.0 0.0.9 1.0.0"),
    ("^0.0.0", "0.0.0", "0.0.1"),
    ("0.*", "0.0.0 0.9.9", "1.0.0"),
    ("0.0.*", "0.0.9", "0.1.0"),
    ("1.0", "1.0.0 1.9.0", "0.9.9 2.0.0"),
    ("=0.0.0", "0.0.0", "0.0.1"),
    (">=1.2, <1.5", "1.2.0 1.4.9", "1.1.9 1.5.0"),
    (" >= 1.2 ,  <1.5 ", "1.2.0 1.4.9", "1.5.0"),
    # with a pre-release: only pre-releases of the same triple, at or above it
    (">=0.7.0-rc.3", "0.7.0-rc.3 0.7.0-rc.10 0.7.0 0.8.0", "0.7.0-rc.2 0.8.0-rc.4 0.6.9"),
    ("^1.2.3-a", "1.2.3-a 1.2.3-b 1.2.3 1.9.0", "1.2.4-a 2.0.0 2.0.0-a"),
    ("=1.2.3-a", "1.2.3-a", "1.2.3-a.0 1.2.3-b 1.2.3"),
    (">1.2.3-a", "1.2.3-a.0 1.2.3-b 1.2.3", "1.2.3-a"),
    ("<=1.2.3-b", "1.2.3-a 1.2.3-b 1.0.0", "1.2.3-c 1.2.3"),
    ("<1.2.3-b", "1.2.3-a 1.0.0", "1.2.3-b 1.2.3"),
    ("~1.2.3-a", "1.2.3-b 1.2.9", "1.3.0 1.2.9-a"),
    ("^1.2.3-a, >=2.0.0-a", "", "1.2.3-b 2.0.0-b 2.0.0"),
]


@pytest.mark.parametrize(("text", "inside", "outside"), REQUIREMENTS, ids=[row[0] for row in REQUIREMENTS])
def test_requirements(text: str, inside: str, outside: str) -> None:
    requirement = Requirement.parse(text)
    assert {one: requirement.matches(Version.parse(one)) for one in [*inside.split(), *outside.split()]} == {
        **dict.fromkeys(inside.split(), True),
        **dict.fromkeys(outside.split(), False),
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "seven",
        "*, 1",
        ">=",
        "=> 1",
        "1.2.3.4",
        "1.*.3",
        "1-rc",
        "1.2-rc",
        "1,",
        ",1",
        "v1",
        "^^1",
        "1 2",
        "01",
        "1.2.3-01",
        "1.*-rc",
        "1.2.*-rc",
        f"{2**64}",
        ",".join(["1"] * 33),
        "1" + " " * 300,
    ],
)
def test_what_is_no_requirement(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Requirement.parse(text)
    assert caught.value.code == "version-requirement"


@given(version=VERSIONS)
def test_a_version_satisfies_itself_exactly_and_at_least(version: str) -> None:
    parsed = Version.parse(version)
    assert Requirement.parse(f"={version}").matches(parsed)
    assert Requirement.parse(f">={version}").matches(parsed)
    assert not Requirement.parse(f">{version}").matches(parsed)
    assert not Requirement.parse(f"<{version}").matches(parsed)


@given(low=VERSIONS, high=VERSIONS)
def test_release_requirements_agree_with_the_order_of_releases(low: str, high: str) -> None:
    bound, version = Version.parse(low).release, Version.parse(high)
    assert Requirement.parse(f">={bound}").matches(version) == (version.release >= bound)
    assert Requirement.parse(f"<{bound}").matches(version) == (version.release < bound)


@given(text=st.text(max_size=30))
def test_garbage_is_refused_in_our_words(text: str) -> None:
    for parse in (Version.parse, Requirement.parse):
        try:
            parse(text)
        except InvalidInput as error:
            assert error.code in ("version", "version-requirement")
