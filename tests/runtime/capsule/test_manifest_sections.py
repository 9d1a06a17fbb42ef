"""What each section of a manifest takes, and what is told of what it does not take."""

from __future__ import annotations

import pytest

from aos_runtime.capsule.manifest import Manifest, parse_manifest
from aos_runtime.errors import InvalidInput, Issue

HEAD = '[package]\nname = "a"\nversion = "0.1.0"\n'


def read(body: str) -> Manifest:
    return parse_manifest((HEAD + body).encode())


def problems(body: str) -> tuple[Issue, ...]:
    with pytest.raises(InvalidInput) as caught:
        read(body)
    return caught.value.issues


KNOWN_KEYS = {
    "package": "name version description authors repository homepage documentation license license-file "
    "readme keywords categories astrid-version publish include exclude metadata",
    "[component]": "id file entrypoint hash type link capabilities",
    "capabilities": "uplink allow_persistent allow_prompt_injection net net_connect net_bind kv fs_read "
    "fs_write host_process identity bind_workers",
    'publish."a.b"': "wit version tag rev branch path fanout",
    'subscribe."a.b"': "wit version tag rev branch path handler priority",
    "env.A": "type request description default enum_values placeholder options_from options-from scope",
    "env.A.options_from": "http bearer select after",
    'imports."a:b"': "version optional",
    'exports."a:b"': "version",
    "[command]": "name description file kind",
    "[mcp_server]": "id description type command args",
    "[context_file]": "name file",
    "[uplink]": "name platform profile",
    "[tool]": "name description_for_llm input_schema_wit mutable",
}
"""The keys of every section (build-install.md 4); any other has no effect, and says so."""
NO_EFFECT = "is not a known key, so it has no effect"


def all_issues(text: str) -> list[str]:
    """Warnings of a manifest, or its issues where it does not hold."""
    try:
        return [issue.message for issue in parse_manifest(text.encode()).warnings]
    except InvalidInput as error:
        return [issue.message for issue in error.issues]


NEEDED = {
    "package": {"name": '"a"', "version": '"0.1.0"'},
    "[component]": {"file": '"x"'},
    'publish."a.b"': {"wit": '"x"'},
    'subscribe."a.b"': {"wit": '"x"', "handler": '"h"'},
    "env.A": {"type": '"text"'},
    "env.A.options_from": {"http": '"x"'},
    'imports."a:b"': {"version": '"1"'},
    'exports."a:b"': {"version": '"1.0.0"'},
    "[command]": {"name": '"x"'},
    "[mcp_server]": {"id": '"x"', "type": '"http"'},
    "[context_file]": {"name": '"x"', "file": '"y"'},
    "[uplink]": {"name": '"x"', "platform": '"y"', "profile": '"chat"'},
    "[tool]": {"name": '"x"'},
}
"""What each section needs to hold."""
VALUES = (
    '"x"',
    '"chat"',
    "true",
    '["x"]',
    "1",
    '{ http = "x" }',
    "{}",
    '"cli"',
    '"1.0.0"',
    f'"sha256:{"0" * 64}"',
)


def section_text(section: str, keys: dict[str, str]) -> str:
    """A manifest whose section has these keys, and what it needs besides."""
    head = "" if section == "package" else HEAD
    if section == "env.A.options_from":
        head += '[env.A]\ntype = "select"\n'
    needed = {} if "entrypoint" in keys else NEEDED.get(section, {})
    rows = "".join(f"{key} = {value}\n" for key, value in {**needed, **keys}.items())
    return f"{head}[{section}]\n{rows}"


def shown_name(section: str) -> str:
    return f"{section[1:-1]}[0]" if section.startswith("[") else section


def warnings_where_it_holds(text: str) -> list[str] | None:
    try:
        return [issue.message for issue in parse_manifest(text.encode()).warnings]
    except InvalidInput:
        return None


@pytest.mark.parametrize(
    ("section", "key"), [(one, key) for one in KNOWN_KEYS for key in KNOWN_KEYS[one].split()]
)
def test_man_03_a_known_key_is_taken(section: str, key: str) -> None:
    tried = [warnings_where_it_holds(section_text(section, {key: value})) for value in VALUES]
    told = [messages for messages in tried if messages is not None]
    assert told
    assert not any(f"`{shown_name(section)}.{key}` {NO_EFFECT}" in messages for messages in told)


@pytest.mark.parametrize("section", KNOWN_KEYS)
def test_man_03_an_unknown_key_is_told(section: str) -> None:
    told = warnings_where_it_holds(section_text(section, {"zzz": "1"}))
    assert told is not None
    assert f"`{shown_name(section)}.zzz` {NO_EFFECT}" in told


TYPED_KEYS = {
    "package": {
        "a string": "name version description repository homepage documentation license license-file readme "
        "astrid-version",
        "a list of strings": "authors keywords categories include exclude",
        "true or false": "publish",
    },
    "[component]": {"a string": "id file hash type", "a list of strings": "link", "a table": "capabilities"},
    "capabilities": {
        "true or false": "uplink allow_persistent allow_prompt_injection",
        "a list of strings": "net net_connect net_bind kv fs_read fs_write host_process identity",
        "a whole number from 0 to 4294967295": "bind_workers",
    },
    'publish."a.b"': {"a string": "wit version tag rev branch path", "true or false": "fanout"},
    'subscribe."a.b"': {
        "a string": "wit version tag rev branch path handler",
        "a whole number from 0 to 4294967295": "priority",
    },
    "env.A": {
        "a string": "type request description placeholder",
        "a list of strings": "enum_values",
        "a table": "options_from options-from",
    },
    "[command]": {"a string": "name description file kind"},
    "[mcp_server]": {"a string": "id description type command", "a list of strings": "args"},
    "[context_file]": {"a string": "name file"},
    "[uplink]": {"a string": "name platform profile"},
    "[tool]": {"a string": "name description_for_llm input_schema_wit", "true or false": "mutable"},
}


@pytest.mark.parametrize("section", TYPED_KEYS)
def test_every_key_has_a_type(section: str) -> None:
    head = "" if section == "package" else HEAD
    name = shown_name(section)
    for wanted, keys in TYPED_KEYS[section].items():
        for key in keys.split():
            told = all_issues(f"{head}[{section}]\n{key} = 2026-01-01\n")
            assert f"`{name}.{key}` must be {wanted}, not a date or time" in told, key


@pytest.mark.parametrize(
    "verb",
    [
        "new",
        "install",
        "update",
        "list",
        "remove",
        "tree",
        "deps",
        "build",
        "check",
        "config",
        "show",
        "run",
        "help",
    ],
)
def test_a_verb_of_aos_is_no_verb_of_a_capsule(verb: str) -> None:
    (issue,) = problems(f'[[command]]\nname = "{verb}"\nkind = "cli"\n')
    assert issue.message == f"`command[0].name` is '{verb}', a verb of aos itself"
    assert read(f'[[command]]\nname = "{verb}"\n').commands[0].kind == "slash"


def test_a_verb_has_32_characters_at_most() -> None:
    assert read(f'[[command]]\nname = "{"v" * 32}"\nkind = "cli"\n').commands[0].name == "v" * 32
    assert len(problems(f'[[command]]\nname = "{"v" * 33}"\nkind = "cli"\n')) == 1


@pytest.mark.parametrize("profile", ["chat", "interactive", "notify", "bridge"])
def test_the_profiles_of_an_uplink(profile: str) -> None:
    row = f'[[uplink]]\nname = "a"\nplatform = "b"\nprofile = "{profile}"\n'
    assert read(row).uplinks[0].profile == profile


@pytest.mark.parametrize("kind", ["text", "secret", "select", "array", "string", "integer", "SECRET"])
def test_the_types_of_an_env_entry(kind: str) -> None:
    manifest = read(f'[env]\nA = {{ type = "{kind}", enum_values = ["x"] }}\n')
    assert manifest.warnings == ()
    assert manifest.env[0].is_secret == (kind.lower() == "secret")


def test_the_whole_of_an_env_entry_goes_over_the_wire() -> None:
    (row,) = read(
        '[env]\nA = { type = "select", request = "r", description = "d", default = "x", '
        'enum_values = ["x", "y"], placeholder = "p", options_from = { http = "h" } }\n'
    ).env
    assert row.to_json() == {
        "type": "select",
        "request": "r",
        "description": "d",
        "default": "x",
        "enum_values": ["x", "y"],
        "placeholder": "p",
        "options_from": {"http": "h", "select": "data[].id", "after": []},
    }


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1])
def test_a_default_is_a_number_of_64_bits(value: int) -> None:
    (row,) = read(f'[env]\nA = {{ type = "integer", default = [{value}, {{ a = 1.5 }}] }}\n').env
    assert row.default == [value, {"a": 1.5}]
    for outside in (-(2**63) - 1, 2**63):
        assert len(problems(f'[env]\nA = {{ type = "integer", default = [{{ a = {outside} }}] }}\n')) == 1


@pytest.mark.parametrize(("value", "held"), [(0, True), (2**32 - 1, True), (2**32, False), (-1, False)])
def test_a_priority_is_a_number_of_32_bits(value: int, held: bool) -> None:
    row = f'[subscribe]\n"a.b" = {{ wit = "x", handler = "h", priority = {value} }}\n'
    if held:
        assert read(row).subscribe[0].priority == value
    else:
        assert len(problems(row)) == 1


def test_rows_without_a_priority_have_100() -> None:
    assert [row.priority for row in read('[subscribe]\n"a.b" = "x"\n').subscribe] == [100]


def warnings(body: str) -> list[tuple[str, str | None]]:
    return [(issue.message, issue.hint) for issue in read(body).warnings]


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        (
            '[env]\nASTRID_SOCKET_PATH = { type = "text" }',
            "`env.ASTRID_SOCKET_PATH` is reserved, so it has no effect",
            None,
        ),
        (
            '[env]\nA = { type = "text", scope = "x" }',
            "`env.A.scope` is the operator's to set, so it has no effect here",
            None,
        ),
        (
            '[env]\nA = { type = "float" }',
            "`env.A.type` is 'float', which is taken as text",
            "the types are text, secret, select, array",
        ),
        (
            '[env]\nA = { type = "select" }',
            "`env.A.type` is select, but there is nothing to select from",
            "add enum_values",
        ),
        (
            '[env]\nA = { type = "select", enum_values = ["x"], default = "y" }',
            "`env.A.default` is not one of `enum_values`",
            "use one of x",
        ),
        (
            '[publish]\n"a.b*" = "x"',
            '`publish."a.b*"` matches its `*` literally',
            "`*` stands for a whole segment between dots",
        ),
        (
            '[publish]\n"a.b.c.d.e.f.g.h.i" = "x"',
            '`publish."a.b.c.d.e.f.g.h.i"` can never match: topic has more than 8 segments',
            None,
        ),
        (
            '[[mcp_server]]\nid = "x"\ntype = "http"',
            "`mcp_server[0].type` is 'http'; only stdio servers are started",
            None,
        ),
        (
            '[[component]]\nfile = "a"\n[[component]]\nfile = "b"',
            "only the first [[component]] is loaded",
            "build one capsule per component",
        ),
        (
            '[capabilities]\nidentity = ["root"]',
            "`capabilities.identity` has the unknown level 'root', which grants nothing",
            None,
        ),
        ("[topic]", "`topic` is a retired section, so it has no effect", "remove it"),
    ],
)
def test_what_has_no_effect_is_told(body: str, message: str, hint: str | None) -> None:
    assert warnings(body) == [(message, hint)]


@pytest.mark.parametrize("level", ["resolve", "link", "admin"])
def test_the_levels_of_identity(level: str) -> None:
    assert warnings(f'[capabilities]\nidentity = ["{level}"]') == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            '[imports]\n"Astrid:kv" = "1"',
            '`imports."Astrid:kv"` is not two names of lowercase letters, digits and hyphens',
        ),
        (
            '[imports]\n"astrid:KV" = "1"',
            '`imports."astrid:KV"` is not two names of lowercase letters, digits and hyphens',
        ),
        (
            '[imports]\n"a:b" = { version = "y" }',
            "`imports.\"a:b\"` is wrong: 'y' is not a version requirement",
        ),
        ('[imports.a]\nb = { version = "y" }', "`imports.a.b` is wrong: 'y' is not a version requirement"),
        ('[[mcp_server]]\nid = "x"', "`mcp_server[0].command` is missing"),
        ('[[mcp_server]]\nid = "x"\ncommand = ""', "`mcp_server[0].command` is empty"),
        (
            '[[context_file]]\nname = "x"\nfile = "../y"',
            "`context_file[0].file` names '../y', which leaves the capsule's folder",
        ),
        (
            '[[component]]\nentrypoint = "../y"',
            "`component[0].entrypoint` names '../y', which leaves the capsule's folder",
        ),
        (
            '[[component]]\nfile = "y"\nhash = "sha256:0"',
            "`component[0].hash` is not `sha256:` or `blake3:` and 64 lowercase hexadecimal digits",
        ),
        ('[publish]\na.b.c = "x"', "`publish.a` is a table, not a topic: `a.b.c` needs quotes"),
        ('[publish]\na.b = { wit = "x" }', "`publish.a` is a table, not a topic: `a.b` needs quotes"),
        ("[publish]\na = { b = { c = 1 } }", "`publish.a` has no `wit`"),
        (
            '[publish]\na = { b = { c = { wit = "x", d = 1 } } }',
            "`publish.a` is a table, not a topic: `a.b.c` needs quotes",
        ),
        ('[publish]\na = { b = "x", c = "y" }', "`publish.a` has no `wit`"),
        (
            '[capabilities]\nuplink = true\n[imports]\n"a:b" = "1"',
            "`imports` cannot be declared by an uplink",
        ),
    ],
)
def test_each_mistake_is_told_by_itself(body: str, message: str) -> None:
    assert [issue.message for issue in problems(body)] == [message]


@pytest.mark.parametrize("algorithm", ["sha256", "blake3"])
def test_the_hashes_of_a_component(algorithm: str) -> None:
    digest = f"{algorithm}:{'0' * 64}"
    component = read(f'[[component]]\nfile = "y"\nhash = "{digest}"\n').component
    assert component is not None
    assert component.hash == digest


def test_a_manifest_has_256_kib_at_most() -> None:
    text = (HEAD + "#").encode()
    assert parse_manifest(text + b"x" * (256 * 1024 - len(text))).name == "a"
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(text + b"x" * (256 * 1024 + 1 - len(text)), file="my.toml")
    assert (caught.value.message, caught.value.context) == (
        "my.toml is larger than 256 KiB",
        {"size_bytes": 256 * 1024 + 1},
    )
