"""Manifests: golden files for whole outputs, cases by id, and what no input may do.

`tests/golden/manifest/NAME.toml` comes with NAME.json (what it reads as, warnings included) or NAME.err
(every issue as an author sees it).  Run as a program, this module writes the expectations anew; read the
difference before it is committed.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.manifest import Manifest, check_host_version, parse_manifest
from aos_runtime.capsule.manifest_sections import MAX_CAPABILITY_ENTRIES
from aos_runtime.errors import InvalidInput, Issue

GOLDEN = Path(__file__).parents[2] / "golden/manifest"
SOURCES = sorted(GOLDEN.glob("*.toml"))
HEAD = '[package]\nname = "a"\nversion = "0.1.0"\n'


def shown(issue: Issue) -> str:
    return f"{issue.render()}\n  hint: {issue.hint}" if issue.hint else issue.render()


def outcome(data: bytes) -> tuple[str, str]:
    """The suffix and the text of what a manifest comes to."""
    try:
        manifest = parse_manifest(data)
    except InvalidInput as error:
        lines = [f"{error.code}: {error.message}", f"hint: {error.hint}", "", *map(shown, error.issues)]
        return ".err", "\n".join(lines) + "\n"
    fields = dataclasses.asdict(manifest)
    fields["warnings"] = [shown(issue) for issue in manifest.warnings]
    requirement = manifest.astrid_version
    fields["package"]["astrid_version"] = None if requirement is None else str(requirement)
    return ".json", json.dumps(fields, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_golden(source: Path) -> None:
    suffix, text = outcome(source.read_bytes())
    assert source.with_suffix(suffix).read_text("utf-8") == text


def test_every_golden_file_belongs_to_a_source() -> None:
    stems = {source.stem for source in SOURCES}
    expectations = [path for path in GOLDEN.iterdir() if path.suffix in (".json", ".err")]
    assert {path.stem for path in expectations} == stems
    assert len(expectations) == len(stems)


def read(body: str) -> Manifest:
    return parse_manifest((HEAD + body).encode())


def problems(body: str) -> tuple[Issue, ...]:
    with pytest.raises(InvalidInput) as caught:
        read(body)
    return caught.value.issues


@pytest.mark.parametrize(("kept", "missing"), [('name = "a"', "version"), ('version = "0.1.0"', "name")])
def test_a_package_has_a_name_and_a_version(kept: str, missing: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(f"[package]\n{kept}\n".encode())
    assert [issue.message for issue in caught.value.issues] == [f"`package.{missing}` is missing"]


def test_a_component_is_executable_unless_it_says_library() -> None:
    found = {}
    for row in ("", 'type = "library"\n', 'type = "executable"\n', 'type = "plugin"\n'):
        manifest = read(f'[[component]]\nfile = "a.wasm"\n{row}')
        assert manifest.component is not None
        found[row] = (manifest.component.type, [issue.message for issue in manifest.warnings])
    assert list(found.values()) == [
        ("executable", []),
        ("library", []),
        ("executable", []),
        ("executable", ["`component[0].type` is 'plugin', which is taken as executable"]),
    ]


def test_imports_and_exports_mean_the_same_flat_and_nested() -> None:
    flat = read(
        '[imports]\n"astrid:llm" = "^1.0"\n"astrid:kv" = { version = "^1.0", optional = true }\n'
        '[exports]\n"astrid:http" = "1.0.0"\n'
    )
    nested = read(
        '[imports.astrid]\nllm = "^1.0"\nkv = { version = "^1.0", optional = true }\n'
        '[exports.astrid]\nhttp = "1.0.0"\n'
    )
    assert (flat.imports, flat.exports) == (nested.imports, nested.exports)
    assert [(one.interface, one.optional) for one in flat.imports] == [("llm", False), ("kv", True)]


def test_a_handler_has_the_priority_100_where_none_is_said() -> None:
    manifest = read(
        '[subscribe]\n"a.b" = { wit = "opaque", handler = "one" }\n'
        '"a.c" = { wit = "opaque", handler = "two", priority = 7 }\n"a.d" = "opaque"\n'
    )
    assert [(row.handler, row.priority) for row in manifest.handlers] == [("one", 100), ("two", 7)]


def test_man_01_the_guides_damaged_row() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_manifest((GOLDEN / "guide-damaged.toml").read_bytes())
    (issue,) = caught.value.issues
    assert (issue.file, issue.line, issue.column) == ("Capsule.toml", 28, 2)
    assert issue.message == "the row `= { wit = , handler =  }` has no topic before its `=`"
    assert issue.hint == (
        'the row that was meant is `"tool.v1.request.describe" = '
        '{ wit = "@unicity-astrid/wit/tool/describe-request", handler = "tool_describe" }`'
    )


def test_man_03_nothing_of_the_acl_is_dropped_quietly() -> None:
    manifest = parse_manifest((GOLDEN / "unknown-keys.toml").read_bytes())
    near = {issue.message.split("`")[1]: issue.hint for issue in manifest.warnings}
    assert near["capabilites"] == "did you mean `capabilities`?"
    assert near["subscribes"] == "did you mean `subscribe`?"
    assert near['subscribe."tool.v1.execute.hello".hanlder'] == "did you mean `handler`?"
    assert near["components"] == "did you mean `component`?"
    assert near["capabilities.fs_raed"] == "did you mean `fs_read`?"
    assert {near[key] for key in ("topic", "interceptor", "skill")} == {"remove it"}


def test_man_04_a_newer_manifest_loads_and_what_is_unknown_grants_nothing() -> None:
    manifest = parse_manifest((GOLDEN / "unknown-keys.toml").read_bytes())
    assert manifest.unknown_capabilities == ("fs_raed", "teleport", "ipc_publish")
    assert manifest.capabilities.is_empty()
    assert manifest.capabilities.bind_workers == 2
    messages = [issue.message for issue in manifest.warnings]
    assert "`package.maintainer_url` is not a known key, so it has no effect" in messages
    assert "`env.A.hint` is not a known key, so it has no effect" in messages


@pytest.mark.parametrize("host", ["0.7.0-dev.3", "0.7.0", "2026.10.1"])
def test_man_09_hosts_that_satisfy(host: str) -> None:
    check_host_version(read('astrid-version = ">=0.7.0"'), host)


@pytest.mark.parametrize(
    ("requirement", "host", "hint"),
    [
        (
            ">1.0.0, <1.0.1",
            "1.0.1",
            'the capsule shuts out newer runtimes; its author can write astrid-version = ">=1.0.1"',
        ),
        (">=0.7.0", "0.6.9", "install a newer aos"),
        (">=0.7.0-rc.3", "0.7.0-rc.2", "install a newer aos"),
        (
            "0.7",
            "2026.10.1",
            'the capsule shuts out newer runtimes; its author can write astrid-version = ">=0.7.0"',
        ),
        (
            "<1",
            "2026.10.1",
            'the capsule shuts out newer runtimes; its author can write astrid-version = ">=1.0.0"',
        ),
    ],
)
def test_man_09_hosts_that_do_not(requirement: str, host: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_host_version(read(f'astrid-version = "{requirement}"'), host)
    error = caught.value
    assert (error.code, error.message, error.hint) == (
        "astrid-version-unsatisfied",
        f"capsule a 0.1.0 needs runtime {requirement}, this is {host}",
        hint,
    )


def test_man_09_no_requirement_takes_any_host() -> None:
    check_host_version(read(""), "0.0.1")


def test_man_10_component_files() -> None:
    (escape,) = problems('[[component]]\nfile = "../x.wasm"\n')
    assert escape.render() == (
        "Capsule.toml:5:1: `component[0].file` names '../x.wasm', which leaves the capsule's folder"
    )
    (double,) = problems('[[component]]\nfile = "x.wasm"\n[[component]]\nfile = "x.wasm"\n')
    assert double.render() == (
        "Capsule.toml:7:1: `component[1].file` names x.wasm, which `component[0]` names already"
    )
    absent = read('[[component]]\nfile = "target/x.wasm"\n')
    assert absent.component is not None
    assert absent.component.file == "target/x.wasm"


def test_man_11_a_server_command_is_matched_as_declared() -> None:
    server = '[[mcp_server]]\nid = "n"\ntype = "stdio"\ncommand = "/opt/node@22/bin/node"\n'
    assert (
        read('[capabilities]\nhost_process = ["/opt/node@22/bin/node"]\n' + server).mcp_servers[0].id == "n"
    )
    for listed in ('["node"]', "[]"):
        (issue,) = problems(f"[capabilities]\nhost_process = {listed}\n{server}")
        assert (
            issue.hint
            == 'add "/opt/node@22/bin/node" to host_process in [capabilities], exactly as written here'
        )


@pytest.mark.parametrize("name", ["byte-order-mark", "crlf"])
def test_man_12_encodings_of_editors_load(name: str) -> None:
    plain = parse_manifest((GOLDEN / "guide.toml").read_bytes())
    assert parse_manifest((GOLDEN / f"{name}.toml").read_bytes()) == plain


def test_man_12_a_table_or_key_twice_names_both_lines() -> None:
    table = problems('[publish]\n"a.b" = "x"\n[subscribe]\n[publish]\n')
    assert [issue.render() for issue in table] == [
        "Capsule.toml:7:1: the table `publish` stands twice: in line 4 and in line 7"
    ]
    key = problems('[publish]\n"a.b" = "x"\n"a.c" = "x"\n"a.b" = "y"\n')
    assert [issue.render() for issue in key] == [
        'Capsule.toml:7:1: the key `publish."a.b"` stands twice: in line 5 and in line 7'
    ]


def test_man_14_a_choice_with_a_default_keeps_it() -> None:
    (row,) = read('[env]\nREGION = { type = "select", enum_values = ["eu", "us"], default = "eu" }\n').env
    assert (row.default, row.enum_values) == ("eu", ("eu", "us"))


@pytest.mark.parametrize("name", ["a", "a-1", "ab-c9-", "", "1a", "-a", "A", "a_b", "a.b", "ä", "a b"])
@pytest.mark.parametrize("table", ["imports", "exports"])
def test_names_of_interfaces(table: str, name: str) -> None:
    for text in (f'[{table}]\n"{name}:x" = "1.0.0"\n', f'[{table}."x"]\n"{name}" = "1.0.0"\n'):
        if name in ("a", "a-1", "ab-c9-"):
            assert len(getattr(read(text), table)) == 1
        else:
            [issue] = problems(text)
            assert issue.message.endswith("is not two names of lowercase letters, digits and hyphens")


PINS = ("version", "tag", "rev", "branch", "path")


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in PINS for b in PINS if a != b])
@pytest.mark.parametrize("table", ["publish", "subscribe"])
def test_a_row_is_pinned_once(table: str, first: str, second: str) -> None:
    read(f'[{table}]\n"a.b" = {{ wit = "x", {first} = "1" }}\n')
    [issue] = problems(f'[{table}]\n"a.b" = {{ wit = "x", {first} = "1", {second} = "2" }}\n')
    assert "cannot stand beside" in issue.message


VERBS = ("deploy", "a", "a-9", "a" * 32)


@pytest.mark.parametrize(
    "name", [*VERBS, "a" * 33, "", "9a", "Deploy", "de ploy", "de_ploy", "install", "help"]
)
def test_names_of_verbs(name: str) -> None:
    text = f'[[command]]\nname = "{name}"\nkind = "cli"\n'
    if name in VERBS:
        assert [command.name for command in read(text).commands] == [name]
    else:
        assert len(problems(text)) == 1


def test_a_tool_row_is_read_and_binds_nothing() -> None:
    manifest = read('[[tool]]\nname = "x"\ndescription_for_llm = "Does x."\n')
    [row] = manifest.tools
    assert (row.name, row.description_for_llm, row.input_schema_wit, row.mutable) == (
        "x",
        "Does x.",
        None,
        False,
    )
    assert (manifest.handlers, manifest.subscribe_patterns, manifest.publish_patterns) == ((), (), ())


def test_retired_sections_bind_and_allow_nothing() -> None:
    manifest = read(
        '[[interceptor]]\nevent = "a.b"\naction = "go"\n[[topic]]\nname = "a.b"\n[[skill]]\nname = "s"\n'
        '[capabilities]\nipc_publish = ["a.*"]\nipc_subscribe = ["a.*"]\n'
    )
    assert (manifest.handlers, manifest.subscribe_patterns, manifest.publish_patterns) == ((), (), ())
    assert manifest.capabilities.is_empty()
    assert manifest.unknown_capabilities == ("ipc_publish", "ipc_subscribe")


def test_every_capability_is_read() -> None:
    """The twelve names of the published manifest, each with the type that it has there."""
    lists = ("net", "kv", "fs_read", "fs_write", "host_process", "net_bind", "net_connect", "identity")
    flags = ("uplink", "allow_persistent", "allow_prompt_injection")
    rows = [f'{name} = ["resolve"]' for name in lists] + [f"{name} = true" for name in flags]
    manifest = read("[capabilities]\nbind_workers = 3\n" + "\n".join(rows) + "\n")
    held = manifest.capabilities.to_json()
    listed, flagged = {name: ["resolve"] for name in lists}, dict.fromkeys(flags, True)
    assert held == {**listed, **flagged, "bind_workers": 3}
    assert (manifest.warnings, manifest.unknown_capabilities) == ((), ())


def test_derived_views() -> None:
    manifest = parse_manifest((GOLDEN / "everything.toml").read_bytes())
    assert manifest.description == "HTTP fetch tool"
    assert manifest.authors == ("Name <e@example.com>", "Other")
    assert manifest.component is not None
    assert manifest.component.file == "bin/http.wasm"
    assert [row.handler for row in manifest.handlers] == ["tool_execute_fetch_url"]
    assert manifest.publish_patterns == ("tool.v1.execute.*.result", "a.b", "a.c")
    assert manifest.subscribe_patterns == ("tool.v1.execute.fetch_url", "acl.only.*", "pinned")
    assert manifest.imports_json() == {
        "astrid": {"llm": "^1.0", "kv": "^1.0"},
        "acme": {"notes": ">=0.1", "extra": "*"},
    }
    assert manifest.exports_json() == {"astrid": {"http": "1.0.0"}, "acme": {"fetch": "0.2.0-beta"}}
    env = {row.key: row.to_json() for row in manifest.env}
    assert env["MODEL"] == {
        "type": "select",
        "options_from": {
            "http": "https://example.com/models",
            "bearer": "API_KEY",
            "select": "data[].id",
            "after": ["API_KEY"],
        },
    }
    assert env["API_KEY"] == {
        "type": "secret",
        "request": "Enter your API key",
        "placeholder": "sk-...",
    }
    assert [row.key for row in manifest.env if row.is_secret] == ["API_KEY"]


def test_a_capability_has_a_bounded_number_of_entries_over_all_components() -> None:
    """Comparing what is asked with what is held takes time by its square: 32,000 took two minutes."""

    def asking(*counts: int) -> bytes:
        tables = [
            f'[[component]]\nfile = "{i}.wasm"\n'
            f"[component.capabilities]\nnet = {[f'{i}-{k}' for k in range(count)]}\n"
            for i, count in enumerate(counts)
        ]
        return (HEAD + "".join(tables)).encode()

    assert len(parse_manifest(asking(600, 400)).capabilities.net) == MAX_CAPABILITY_ENTRIES
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(asking(600, 401))
    assert [shown(issue) for issue in caught.value.issues] == [
        "Capsule.toml:10:1: a capability has more than 1000 entries"
    ]


def test_a_manifest_without_component_has_none() -> None:
    assert read("").component is None


def test_the_file_name_of_issues_is_the_callers() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(b"x", file="my-capsule/Capsule.toml")
    assert caught.value.issues[0].file == "my-capsule/Capsule.toml"


def test_a_huge_manifest_is_refused_unread() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(b"#" * (256 * 1024 + 1))
    assert caught.value.code == "manifest-too-large"


@pytest.mark.parametrize(
    "data",
    [
        b"a = " + b"[" * 200_000,
        b"a = " + b"{a = " * 40_000,
        b".".join([b"a"] * 100_000) + b" = 1",
        b"a = " + b"9" * 200_000,
        b'"""' * 80_000,
        b"a = '''" + b"'" * 200_000,
        b"[" * 200_000,
        b"[[a]]\n" * 10_000 + b"x",
    ],
    ids=["arrays", "inline tables", "dotted key", "digits", "quotes", "literal quotes", "headers", "tables"],
)
def test_hostile_toml_is_refused_and_soon(data: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(data)
    assert caught.value.code == "manifest-syntax"
    assert len(caught.value.message) < 400


@given(data=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_garbage_gives_invalid_input_only(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_manifest(data)


SCALAR = st.sampled_from(
    ['"x"', "1", "true", "[]", '["a"]', "{}", '{ wit = "x" }', "1.5", "2026-01-01", '""']
)
KEY = st.sampled_from(
    [
        "name",
        "version",
        "file",
        "net",
        "uplink",
        "type",
        "default",
        '"a.b"',
        "wit",
        "handler",
        "priority",
        "x",
        "kind",
    ]
)
TABLE = st.sampled_from(
    [
        "[package]",
        "[[component]]",
        "[capabilities]",
        "[publish]",
        "[subscribe]",
        "[env]",
        "[env.A]",
        "[imports]",
        "[exports.a]",
        "[[command]]",
        "[[mcp_server]]",
        "[[uplink]]",
        "[[tool]]",
        "[[context_file]]",
        "[[topic]]",
    ]
)
TABLES = st.lists(st.tuples(TABLE, st.dictionaries(KEY, SCALAR, max_size=4)), max_size=6)


@given(tables=TABLES)
def test_any_table_is_read_or_refused_with_places(tables: list[tuple[str, dict[str, str]]]) -> None:
    text = "\n".join(f"{head}\n" + "\n".join(f"{k} = {v}" for k, v in rows.items()) for head, rows in tables)
    try:
        parse_manifest(text.encode())
    except InvalidInput as error:
        assert error.issues
        lines = text.count("\n") + 1
        assert all(issue.line is None or 1 <= issue.line <= lines for issue in error.issues)


if __name__ == "__main__":
    for stale in (*GOLDEN.glob("*.json"), *GOLDEN.glob("*.err")):
        stale.unlink()
    for path in SOURCES:
        kind, result = outcome(path.read_bytes())
        path.with_suffix(kind).write_text(result, "utf-8")
