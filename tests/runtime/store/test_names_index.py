"""store.names_index: names for shell completion, safe to use unquoted."""

from __future__ import annotations

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store.commit import remove_installed
from aos_runtime.store.layout import open_home
from aos_runtime.store.names_index import read_tools, rebuild, record_tools
from tests.runtime.store.conftest import Install

DEMO = CapsuleName("demo")


def test_every_kind_is_listed_sorted_and_once(home: Home, install: Install) -> None:
    install("demo")
    install("zeta")
    install("demo", principal=PrincipalName("alice"))
    record_tools(home, DEFAULT_PRINCIPAL, {DEMO: ["hello", "bye"]})
    rebuild(home, templates=["tool"])
    assert home.names_index.read_text() == (
        "capsule\tdemo\ncapsule\tzeta\ntemplate\ttool\ntool\tbye\ntool\thello\n"
    )


def test_an_install_and_a_removal_keep_the_index_true(home: Home, install: Install) -> None:
    rebuild_templates = ["tool"]
    open_home(home, create=True)
    rebuild(home, templates=rebuild_templates)
    install("demo")
    record_tools(home, DEFAULT_PRINCIPAL, {DEMO: ["hello"]})
    remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=False)
    assert home.names_index.read_text() == "template\ttool\n"


def test_a_name_that_a_shell_could_trip_over_is_left_out(home: Home, install: Install) -> None:
    install("demo")
    record_tools(home, DEFAULT_PRINCIPAL, {DEMO: ["ok", "$(reboot)", "a b", "a\tb", "a\nb", "ü", ""]})
    assert home.names_index.read_text() == "capsule\tdemo\ntool\tok\n"


def test_damaged_records_are_no_tools(home: Home) -> None:
    open_home(home, create=True)
    record_tools(home, DEFAULT_PRINCIPAL, {DEMO: ["a"]})
    for text in ("", "[]", "{", '{"demo": 1}'):
        (home.var / "tools" / "default.json").write_text(text)
        assert read_tools(home, DEFAULT_PRINCIPAL) == {}
