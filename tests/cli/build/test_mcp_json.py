"""A list of MCP servers becomes a manifest, or is refused with the file, the server and the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_cli.build.mcp_json import MAX_JSON_BYTES, Converted, convert_file
from aos_runtime.capsule.manifest import Manifest, parse_manifest
from aos_runtime.errors import AosError, InvalidInput, LimitExceeded, NotFound


def convert(folder: Path, value: object, name: str = "mcp.json") -> Converted:
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return convert_file(file)


def manifest(folder: Path, value: object) -> Manifest:
    return parse_manifest(convert(folder, value).data)


def problems(folder: Path, value: object) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        convert(folder, value)
    assert caught.value.code == "mcp-json-invalid"
    return [issue.render() for issue in caught.value.issues]


def test_a_server_a_program_a_variable_and_a_url(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.\n")
    (tmp_path / "commands").mkdir()
    for name in ("b.toml", "a.toml", "notes.txt"):
        (tmp_path / "commands" / name).touch()
    value = {
        "name": "times",
        "version": "2.1.0",
        "description": "Tells the time",
        "mcpServers": {
            "clock": {"command": "python3", "args": ["clock.py", "-q"], "env": {"ZONE": "UTC"}},
            "again": {"command": "python3", "description": "A second one"},
            "far": {"httpUrl": "https://times.example/mcp"},
        },
    }
    converted = convert(tmp_path, value)
    assert converted.data.decode() == (
        "# Made from mcp.json by `aos capsule build`.\n"
        '[package]\nname = "times"\nversion = "2.1.0"\ndescription = "Tells the time"\n'
        'authors = ["Auto-Converter"]\n\n'
        '[capabilities]\nhost_process = ["python3"]\n\n'
        '[env.ZONE]\ntype = "secret"\nrequest = "The value of ZONE for its MCP server"\n\n'
        '[[mcp_server]]\nid = "clock"\ndescription = "MCP server clock"\ntype = "stdio"\n'
        'command = "python3"\nargs = ["clock.py", "-q"]\n\n'
        '[[mcp_server]]\nid = "again"\ndescription = "A second one"\ntype = "stdio"\n'
        'command = "python3"\nargs = []\n\n'
        '[[mcp_server]]\nid = "far"\ndescription = "MCP server far"\ntype = "sse"\n'
        'url = "https://times.example/mcp"\n\n'
        '[[context_file]]\nname = "workspace-context"\nfile = "AGENTS.md"\n\n'
        '[[command]]\nname = "/a"\nfile = "commands/a.toml"\n\n'
        '[[command]]\nname = "/b"\nfile = "commands/b.toml"\n'
    )
    assert converted.folders == ("commands",)
    assert [issue.render() for issue in converted.warnings] == [
        "mcp.json: server `far` has a URL, and only stdio servers are started: its row has no effect"
    ]
    made = parse_manifest(converted.data)
    assert [issue.message for issue in made.warnings] == [
        "`mcp_server[2].type` is 'sse'; only stdio servers are started",
        "`mcp_server[2].url` is not a known key, so it has no effect",
    ]


def test_what_is_left_out_gets_the_published_defaults_and_a_missing_name_is_told(tmp_path: Path) -> None:
    converted = convert(tmp_path, {"mcpServers": {"a": {"command": "x"}}})
    made = parse_manifest(converted.data)
    assert (made.name, made.version, made.description) == ("legacy-mcp", "1.0.0", "Converted MCP capsule")
    assert [issue.render() for issue in converted.warnings] == [
        "mcp.json: `name` is missing: the capsule is called legacy-mcp"
    ]


def test_settings_name_the_variables_where_there_are_some(tmp_path: Path) -> None:
    settings = [
        {"name": "API key", "description": "From your account", "envVar": "API_KEY"},
        {"envVar": "REGION"},
        {"name": "of no variable"},
    ]
    servers = {"a": {"command": "x", "env": {"OTHER": "secret-value"}}}
    converted = convert(tmp_path, {"name": "n", "settings": settings, "mcpServers": servers})
    rows = [(row.key, row.type, row.request, row.description) for row in parse_manifest(converted.data).env]
    assert rows == [
        ("API_KEY", "secret", "API key", "From your account"),
        ("REGION", "secret", "REGION", None),
    ]


def test_no_value_of_a_variable_travels(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "env": {"KEY": "sk-123"}, "headers": {"Authorization": "sk-123"}}}
    assert b"sk-123" not in convert(tmp_path, {"mcpServers": servers}).data


def test_what_is_not_taken_over_is_told(tmp_path: Path) -> None:
    server = {"command": "${HOME}/x", "args": ["${dir}/y"], "cwd": "/tmp", "disabled": True}
    converted = convert(tmp_path, {"name": "n", "mcpServers": {"a": server}})
    assert [issue.render() for issue in converted.warnings] == [
        "mcp.json: server `a`: `cwd` is not taken over",
        "mcp.json: server `a`: `disabled` is not taken over",
        "mcp.json: server `a`: `command` has a variable, and nothing replaces it",
        "mcp.json: server `a`: `args` has a variable, and nothing replaces it",
    ]


def test_the_context_file_may_have_another_name_but_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "GEMINI.md").touch()
    (tmp_path.parent / "GEMINI.md").touch()
    value = {"name": "n", "contextFileName": "../GEMINI.md", "mcpServers": {"a": {"command": "x"}}}
    assert manifest(tmp_path / "below", value).context_files[0].file == "GEMINI.md"
    assert manifest(tmp_path, value).context_files == ()


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({}, "server `a`: `command` is missing"),
        ({"command": ""}, "server `a`: `command` is missing"),
        ({"command": ["x"]}, "server `a`: `command` is a list, and must be text"),
        ({"command": "a\0b"}, "server `a`: `command` has a NUL or half a character"),
        ({"httpUrl": 7}, "server `a`: `httpUrl` is a number, and must be text"),
        ({"command": "x", "args": "y"}, "server `a`: `args` is text, and must be a list of texts"),
        ({"command": "x", "args": ["y", 8080]}, "server `a`: `args[1]` is a number, and must be text"),
        ({"command": "x", "args": [None]}, "server `a`: `args[0]` is nothing, and must be text"),
        ({"command": "x", "args": [True]}, "server `a`: `args[0]` is true or false, and must be text"),
        ({"command": "x", "args": ["\ud800"]}, "server `a`: `args[0]` has a NUL or half a character"),
        ({"command": "x", "env": ["A=1"]}, "server `a`: `env` is a list, and must be an object"),
        ({"command": "x", "env": {"A B": "1"}}, "server `a`: `env.A B` is wrong: invalid env key 'A B'"),
        ({"command": "x", "description": 1}, "server `a`: `description` is a number, and must be text"),
        ("x", "`mcpServers.a` is text, and must be an object"),
    ],
)
def test_a_bad_server_is_named_with_its_field(tmp_path: Path, server: object, problem: str) -> None:
    assert problems(tmp_path, {"name": "n", "mcpServers": {"a": server}}) == [f"mcp.json: {problem}"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "../../etc"}, "`name` is wrong: invalid capsule name '../../etc'"),
        ({"name": "My Servers"}, "`name` is wrong: invalid capsule name 'My Servers'"),
        ({"name": 7}, "`name` is a number, and must be text"),
        ({"version": "1"}, "`version` is wrong: '1' is not a semantic version"),
        ({"settings": {}}, None),
        ({"settings": {"a": 1}}, "`settings` is an object, and must be a list"),
        ({"settings": [{"envVar": "9"}]}, "settings[0]: `envVar` is wrong: invalid env key '9'"),
        ({"settings": ["KEY"]}, "`settings[0]` is text, and must be an object"),
        ({"contextFileName": ["A.md"]}, "`contextFileName` is a list, and must be text"),
        ({"mcpServers": [1]}, "`mcpServers` is a list, and must be an object"),
        ({"mcpServers": {"": {"command": "x"}}}, "`mcpServers` has a server without a name"),
        ({"mcpServers": {}}, "`mcpServers` is missing or empty"),
        ({"mcpServers": None, "servers": {}}, "`mcpServers` is missing or empty"),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, fields: dict[str, Any], problem: str | None) -> None:
    value = {"name": "n", "mcpServers": {"a": {"command": "x"}}} | fields
    if problem is None:
        assert convert(tmp_path, value).warnings == ()
    else:
        assert f"mcp.json: {problem}" in problems(tmp_path, value)


def test_the_key_of_another_program_gets_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        convert(tmp_path, {"servers": {"a": {"command": "x"}}})
    assert (caught.value.message, caught.value.hint) == (
        "`servers` is not read",
        "rename it to `mcpServers`",
    )


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, {"version": "x", "mcpServers": {"a": {}, "b": {"command": 1}}})
    assert len(found) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"mcpServers": {} 1}', "mcp.json:1:19: "),
        ("[]", "mcp.json: it holds a list, not an object"),
        ('{"mcpServers": {"a": {}, "a": {}}}', "mcp.json: the key 'a' stands in one object twice"),
        ("[" * 100_000, "mcp.json: it is nested too deep"),
        ("", "mcp.json:1:1: "),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        convert(tmp_path, text)
    assert caught.value.code == "mcp-json-syntax"
    assert caught.value.issues[0].render().startswith(words)


def test_a_byte_order_mark_is_no_problem_and_another_encoding_is(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b'\xef\xbb\xbf{"name": "n", "mcpServers": {"a": {"command": "x"}}}')
    assert convert_file(file).warnings == ()
    file.write_bytes(b'{"name": "\xff"}')
    with pytest.raises(InvalidInput) as caught:
        convert_file(file)
    assert caught.value.issues[0].message == "it is not UTF-8"


def test_a_missing_file_and_one_without_end(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        convert_file(tmp_path / "gone.json")
    assert missing.value.code == "mcp-json-missing"
    with pytest.raises(NotFound):
        convert_file(tmp_path)
    with pytest.raises(LimitExceeded) as large:
        convert(tmp_path, " " * (MAX_JSON_BYTES + 1))
    assert large.value.code == "mcp-json-size"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("name", "version", "mcpServers", "command", "args", "env", "settings", "envVar"))
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(value=JSON)
def test_any_json_gives_a_manifest_that_holds_or_a_refusal(
    value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        converted = convert(folder, value, "any.json")
    except AosError as error:
        assert error.code.startswith("mcp-json-")
    else:
        parse_manifest(converted.data)
