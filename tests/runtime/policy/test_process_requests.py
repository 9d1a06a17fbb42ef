"""What of a request to start a program is refused, limit by limit, and in which case."""

from __future__ import annotations

from typing import Any

import pytest

from aos_runtime.policy import process_rules as rules
from aos_runtime.policy.process_rules import (
    Injection,
    Limits,
    ProcessCase,
    ProcessDenial,
    ProcessRefused,
    check_command,
    check_spawn,
    check_suffix,
    check_variable,
    read_folder,
)
from tests.support.programs import request

MIB = 1_048_576


def refusal(*words: str, **changes: object) -> ProcessRefused | None:
    try:
        check_spawn(request(*(words or ("a",)), **changes))
    except ProcessRefused as refused:
        return refused
    return None


def invalid(why: str, **changes: object) -> bool:
    refused = refusal(**changes)
    return refused is not None and (refused.case, refused.why) == (ProcessCase.INVALID_INPUT, why)


def too_large(**changes: object) -> bool:
    refused = refusal(**changes)
    return refused is not None and refused.case is ProcessCase.TOO_LARGE


def at(place: str, content: bytes = b"x") -> dict[str, Any]:
    return {"content": content, "placement": ("absolute-path", place)}


def pointed(key: str, content: bytes = b"x") -> dict[str, Any]:
    return {"content": content, "placement": ("env-pointer", key)}


def test_the_limits_are_the_published_ones() -> None:
    assert (rules.MIB, rules.MAX_STDIN_BYTES, rules.MAX_WRITE_BYTES) == (MIB, 4 * MIB, MIB)
    assert (rules.MAX_ENV_VARS, rules.MAX_ENV_VALUE_BYTES) == (256, 65_536)
    assert (rules.MAX_INJECTIONS, rules.MAX_INJECTION_BYTES, rules.MAX_INJECTIONS_BYTES) == (
        128,
        8 * MIB,
        16 * MIB,
    )
    assert (rules.MAX_PATH_BYTES, rules.MAX_LABEL_BYTES, rules.MAX_SUFFIX_BYTES) == (4096, 128, 128)
    assert (rules.MIN_RING_BYTES, rules.RING_BYTES, rules.MAX_RING_BYTES) == (4096, MIB, 8 * MIB)
    assert (rules.WAITED_RING_BYTES, rules.MAX_CHUNK_BYTES) == (4 * MIB, 4 * MIB)
    assert (rules.MAX_RETAINED, rules.MAX_RETAINED_IN_ALL) == (32, 256)
    assert (rules.GRACE_S, rules.MAX_GRACE_S) == (5.0, 30.0)


def test_the_cases_are_those_of_the_interface() -> None:
    assert [case.value for case in ProcessCase] == [
        "capability-denied",
        "invalid-input",
        "boundary-escape",
        "quota",
        "too-large",
        "closed",
        "cancelled",
        "wait-timeout",
        "no-such-process",
        "registry-full",
        "persist-unsupported",
        "unknown",
    ]


def test_a_refusal_says_why_or_its_case() -> None:
    told, bare = ProcessRefused(ProcessCase.QUOTA, "eight run"), ProcessRefused(ProcessCase.CLOSED)
    assert (str(told), told.why, told.case) == ("eight run", "eight run", ProcessCase.QUOTA)
    assert (str(bare), bare.why) == ("closed", "")


def test_no_limit_is_told_from_one() -> None:
    assert Limits().is_none is True
    assert Limits(open_files=1).is_none is False


def test_a_denial_shows_so_much_of_a_command_and_counts_repeats_only() -> None:
    denial = check_command((), "x" * 300, (), "process.spawn")
    assert denial is not None
    assert denial.allow == f'[capabilities] host_process = ["{"x" * 200}"]'
    bare = ProcessDenial(operation="o", command="c", case=ProcessCase.QUOTA, rule="r")
    assert bare.render() == 'denied operation=o command="c" case=quota rule="r"'


@pytest.mark.parametrize("command", ["", " ", "\t", "a\nb", "a\x7f"])
def test_what_is_no_command(command: str) -> None:
    refused = refusal(command)
    assert refused is not None
    assert (refused.case, refused.why) == (
        ProcessCase.INVALID_INPUT,
        "the command is empty or holds control characters",
    )


def test_arguments_have_a_size_together_and_no_nul() -> None:
    assert invalid("an argument holds a NUL byte", args=["ok", "a\0b"])
    assert refusal("ab", "x" * (MIB - 4), "") is None  # 2, and each argument with one byte for its end
    too_many = refusal("ab", "x" * (MIB - 3), "")
    assert too_many is not None and too_many.why == f"the arguments have more than {MIB} bytes"
    assert refusal("é", "x" * (MIB - 3)) is None
    assert refusal("é", "x" * (MIB - 2)) is not None


def test_stdin_has_a_size() -> None:
    assert refusal(stdin=b"x" * (4 * MIB)) is None
    assert too_large(stdin=b"x" * (4 * MIB + 1))


def test_an_idle_time_of_nothing_is_none() -> None:
    assert invalid("an idle time of nothing", idle_timeout_ms=0)
    assert check_spawn(request("a", idle_timeout_ms=1)).idle_s == 0.001


def rows(*keys: str, value: str = "v") -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key in keys]


def test_variables_have_a_number_a_size_and_are_there_once() -> None:
    assert refusal(env=rows(*(f"K{number}" for number in range(256)))) is None
    assert too_large(env=rows(*(f"K{number}" for number in range(257))))
    assert invalid("the variable K twice", env=rows("K", "K"))
    assert invalid(f"the variable {'K' * 80} twice", env=rows("K" * 81, "K" * 81))
    assert refusal(env=rows("K", value="é" * 32_768)) is None
    why = "the value of K holds a NUL byte or is too long"
    assert invalid(why, env=rows("K", value="é" * 32_768 + "x"))
    assert invalid(why, env=rows("K", value="a\0b"))
    assert invalid(why.replace("K", "K" * 80), env=rows("K" * 81, value="\0"))
    assert invalid("'9' is no name of a variable", env=rows("9"))


@pytest.mark.parametrize("key", ["", "9a", "a-b", "a b", "a=b", "a\n", "é"])
def test_what_is_no_name_of_a_variable(key: str) -> None:
    with pytest.raises(ProcessRefused, match="is no name of a variable") as caught:
        check_variable(key)
    assert caught.value.case is ProcessCase.INVALID_INPUT
    check_variable("_aZ9")


def test_a_long_name_is_cut_where_it_is_told() -> None:
    with pytest.raises(ProcessRefused) as caught:
        check_variable("-" * 81)
    assert caught.value.why == f"'{'-' * 80}' is no name of a variable"
    with pytest.raises(ProcessRefused) as caught:
        check_variable("LD_" + "X" * 78)
    assert caught.value.why == f"the variable LD_{'X' * 77} is not a guest's to set"


@pytest.mark.parametrize(
    "key",
    [
        "PATH",
        "ASTRID_SESSION_TOKEN",
        "AOS_CHILD",
        "BASH_ENV",
        "ENV",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "NODE_OPTIONS",
        "PERL5OPT",
        "PYTHONHOME",
        "PYTHONPATH",
        "RUBYOPT",
        "ZDOTDIR",
        "LD_PRELOAD",
        "LD_",
        "DYLD_INSERT_LIBRARIES",
    ],
)
def test_variables_that_run_code_of_their_own_are_nobodys(key: str) -> None:
    with pytest.raises(ProcessRefused, match=f"the variable {key} is not a guest's to set"):
        check_variable(key)
    check_variable(key.lower())


def injected(*asked: dict[str, Any], env: tuple[str, ...] = ()) -> tuple[Injection, ...]:
    return check_spawn(request("a", file_injections=list(asked), env=rows(*env))).injections


def test_an_injection_is_at_a_path_or_behind_a_variable() -> None:
    assert injected(at("/etc/x", b"one"), pointed("CONFIG", b"two")) == (
        Injection(content=b"one", path="/etc/x", variable=None),
        Injection(content=b"two", path=None, variable="CONFIG"),
    )
    assert check_spawn({**request("a"), "file-injections": None}).injections == ()
    version_1_0 = request("a")
    del version_1_0["file-injections"]
    assert check_spawn(version_1_0).injections == ()


@pytest.mark.parametrize(
    "place", ["", "x", "x/y", "/", "//x", "/a//b", "/.", "/a/./b", "/..", "/a/..", "/a\nb", "/a/"]
)
def test_an_injection_needs_an_absolute_path(place: str) -> None:
    assert invalid("an injection needs an absolute path without `..`", file_injections=[at(place)])


def test_a_path_of_an_injection_has_a_length_and_a_variable_a_name() -> None:
    assert refusal(file_injections=[at("/" + "x" * 4095)]) is None
    assert refusal(file_injections=[at("/" + "x" * 4096)]) is not None
    assert invalid("the variable PATH is not a guest's to set", file_injections=[pointed("PATH")])


def test_injections_have_a_number_and_a_size_each_and_together() -> None:
    many = [at(f"/{number}") for number in range(129)]
    assert refusal(file_injections=many[:128]) is None
    assert too_large(file_injections=many)
    full = b"x" * (8 * MIB)
    assert refusal(file_injections=[at("/a", full), at("/b", full)]) is None
    assert too_large(file_injections=[at("/a", full + b"x")])
    assert too_large(file_injections=[at("/a", full), at("/b", full), at("/c", b"x")])


def test_two_injections_are_at_two_places() -> None:
    why = "two injections at one place"
    assert invalid(why, file_injections=[at("/a"), at("/a")])
    assert invalid(why, file_injections=[pointed("A"), pointed("A")])
    assert invalid(why, file_injections=[pointed("A")], env=rows("A"))
    assert len(injected(at("/a"), at("/b"), pointed("A"), pointed("B"), env=("C",))) == 4


def test_a_folder_has_a_length_and_no_control_characters() -> None:
    assert read_folder("x" * 4096) == ("x" * 4096,)
    for bad in ("x" * 4097, "a\nb"):
        with pytest.raises(ProcessRefused) as caught:
            read_folder(bad)
        assert (caught.value.case, caught.value.why) == (
            ProcessCase.INVALID_INPUT,
            "the working directory is no path",
        )


def test_a_suffix_has_a_length() -> None:
    with pytest.raises(ProcessRefused):
        check_suffix("x" * 129)


def test_a_label_loses_its_control_characters() -> None:
    assert check_spawn(request("a", label="b\x1b[1m\x7fc")).label == "b[1mc"
