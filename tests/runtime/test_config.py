"""config: a key that nothing enforces is an error with its line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.config import KEYS, Settings, load_settings, parse_settings
from aos_runtime.errors import InvalidInput, Unavailable
from aos_runtime.home import Home


def _issues(text: str) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        parse_settings(text.encode(), "config.toml")
    return [issue.render() for issue in caught.value.issues]


def test_nothing_set_gives_the_defaults(tmp_path: Path) -> None:
    assert load_settings(Home(tmp_path / "home")) == Settings() == parse_settings(b"", "config.toml")
    assert list(tmp_path.iterdir()) == []


def test_every_setting_is_read() -> None:
    text = (
        "[timeouts]\ndaemon_ready_secs = 7\ndaemon_shutdown_secs = 8\ncall_secs = 9\n"
        "[limits]\nmemory_bytes = 33554432\nfuel_per_call = 1000000\n"
        '[logging]\nlevel = "debug"\n'
        '[security.capsule_local_egress]\nfetcher = ["127.0.0.1:8080", "[::1]:*"]\nother = []\n'
    )
    assert parse_settings(text.encode(), "config.toml") == Settings(
        daemon_ready_s=7,
        daemon_shutdown_s=8,
        call_timeout_s=9,
        memory_bytes=32 * 1024 * 1024,
        fuel_per_call=1_000_000,
        log_level="debug",
        local_egress={"fetcher": ("127.0.0.1:8080", "[::1]:*"), "other": ()},
    )
    assert {key.field for key in KEYS.values()} == {field.name for field in dataclasses.fields(Settings)}


def test_sec_16_a_security_key_that_does_nothing_is_an_error() -> None:
    assert _issues('[security]\nblocked_tools = ["x"]\n') == [
        "config.toml:2: `security.blocked_tools` is not a setting of this aos; it would have no effect"
    ]


def test_budgets_of_users_and_uplinks_of_everybody_are_no_settings() -> None:
    assert _issues('[resources]\nmax_users = 1\n[[uplinks]]\nname = "x"\n') == [
        "config.toml:2: `resources.max_users` is not a setting of this aos; it would have no effect",
        "config.toml:3: `uplinks` is not a setting of this aos; it would have no effect",
    ]


def test_dmn_23_every_typo_is_named_with_its_line() -> None:
    text = '\n[timeouts]\ncall_secs = 5\ncal_secs = 5\n\n# comment\n[loging]\nlevel = "info"\n[x]\n'
    assert _issues(text) == [
        "config.toml:4: `timeouts.cal_secs` is not a setting of this aos; it would have no effect",
        "config.toml:8: `loging.level` is not a setting of this aos; it would have no effect",
        "config.toml:9: `x` is not a setting of this aos; it would have no effect",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("timeout = 5\n", 1),
        ("\ntimeouts.cal_secs = 5\n", 2),
        ('["timeouts"]\n"cal_secs" = 5\n', 2),
        ("[timeouts.cal_secs]\nx = 1\n", 1),
        ("\ntimeouts = { cal_secs = 5 }\n", 2),
        ("\n[[timeouts]]\ncal_secs = 5\n", 2),
    ],
)
def test_the_line_is_found_in_every_spelling(text: str, line: int | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_settings(text.encode(), "config.toml")
    assert caught.value.issues[0].line == line


@pytest.mark.parametrize(
    ("text", "key", "range_text"),
    [
        ("[timeouts]\ncall_secs = 0\n", "timeouts.call_secs", "a whole number from 1 to 3600"),
        ("[timeouts]\ncall_secs = true\n", "timeouts.call_secs", "a whole number from 1 to 3600"),
        (
            "[limits]\nmemory_bytes = 1.5\n",
            "limits.memory_bytes",
            "a whole number from 1048576 to 4294967296",
        ),
        ('[logging]\nlevel = "loud"\n', "logging.level", "one of trace, debug, info, warn, error"),
        ("[logging]\nlevel = []\n", "logging.level", "one of trace, debug, info, warn, error"),
    ],
)
def test_a_value_out_of_range_says_the_range(text: str, key: str, range_text: str) -> None:
    assert _issues(text) == [f"config.toml:2: `{key}` must be {range_text}"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("true", 'must be a table of lists, such as fetcher = ["127.0.0.1:8080"]'),
        ('["127.0.0.1:8080"]', 'must be a table of lists, such as fetcher = ["127.0.0.1:8080"]'),
        ('{ "Bad Name" = [] }', "names no capsule: 'Bad Name'"),
        ('{ a = "127.0.0.1:8080" }', "has something else than a list of host:port or host:* for a"),
        ("{ a = [8080] }", "has something else than a list of host:port or host:* for a"),
        ('{ a = ["127.0.0.1"] }', "has something else than a list of host:port or host:* for a"),
        ('{ a = ["*:*"] }', "has something else than a list of host:port or host:* for a"),
        ('{ a = ["b:0"] }', "has something else than a list of host:port or host:* for a"),
        ('{ a = ["b:65536"] }', "has something else than a list of host:port or host:* for a"),
        ('{ a = ["http://b:80"] }', "has something else than a list of host:port or host:* for a"),
    ],
)
def test_sec_09_an_exemption_that_would_open_nothing_or_everything_is_an_error(
    value: str, problem: str
) -> None:
    text = f"[security]\ncapsule_local_egress = {value}\n"
    assert _issues(text) == [f"config.toml:2: `security.capsule_local_egress` {problem}"]


def test_a_syntax_error_has_its_place() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_settings(b"[timeouts]\ncall_secs = \n", "config.toml")
    assert caught.value.code == "config-syntax"
    assert (caught.value.issues[0].line, caught.value.issues[0].column) == (2, 13)


@given(st.binary(max_size=200))
def test_any_bytes_are_settings_or_invalid(data: bytes) -> None:
    try:
        assert isinstance(parse_settings(data, "config.toml"), Settings)
    except InvalidInput as error:
        assert error.issues


def test_dmn_23_a_config_in_the_other_place_is_reported(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.etc.mkdir(parents=True)
    misplaced = home.state / "config.toml"
    misplaced.write_text("")
    with pytest.raises(InvalidInput) as caught:
        load_settings(home)
    assert caught.value.code == "config-misplaced"
    assert caught.value.hint == f"move it: mv {misplaced} {home.config_file}"


def test_the_file_that_is_named_is_the_file_that_is_read(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.etc.mkdir(parents=True)
    home.config_file.write_text("[timeouts]\ncall_secs = 5\n")
    assert load_settings(home).call_timeout_s == 5
    home.config_file.write_text("[timeouts]\nx = 5\n")
    with pytest.raises(InvalidInput) as caught:
        load_settings(home)
    assert caught.value.issues[0].file == str(home.config_file)
    home.config_file.unlink()
    home.config_file.mkdir()
    with pytest.raises(Unavailable):
        load_settings(home)
