"""What is asked, what of it is new, and how a person reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.capability import (
    CAPABILITY_NAMES,
    MAX_ACCEPT_WORKERS,
    Capabilities,
    Permission,
    held_names,
    permissions,
)
from aos_runtime.errors import Corrupt

EMPTY = Capabilities()
ENTRIES = st.lists(
    st.sampled_from(
        [
            "*",
            "home://",
            "home://a",
            "home://a/b",
            "cwd://x",
            "/etc",
            "git",
            "git status",
            "example.com",
            "api.example.com",
            "db:5432",
            "db:*",
            "resolve",
            "link",
            "admin",
            "home://a/../b",
        ]
    ),
    max_size=3,
    unique=True,
).map(tuple)
CAPABILITIES = st.builds(
    Capabilities,
    uplink=st.booleans(),
    allow_persistent=st.booleans(),
    allow_prompt_injection=st.booleans(),
    net=ENTRIES,
    net_connect=ENTRIES,
    net_bind=ENTRIES,
    kv=ENTRIES,
    fs_read=ENTRIES,
    fs_write=ENTRIES,
    host_process=ENTRIES,
    identity=ENTRIES,
    bind_workers=st.none() | st.integers(min_value=0, max_value=9),
)

# capability, what is held, what is asked and therefore already covered, what is asked and not covered
IMPLICATIONS = [
    ("net", "example.com", ("example.com", "api.example.com"), ("badexample.com", "com", "*")),
    ("net", "*", ("*", "example.com"), ()),
    ("net", "*.example.com", ("*.example.com",), ("api.example.com",)),
    ("net_connect", "db:*", ("db:5432", "DB:1", "db:*"), ("db2:5432", "*:5432")),
    ("net_connect", "db:5432", ("db:5432",), ("db:*", "db:5433")),
    ("net_bind", "unix:*", ("unix:*", "unix:a"), ("127.0.0.1:80",)),
    ("fs_read", "home://", ("home://", "home://docs"), ("cwd://", "/", "*", "homer://x")),
    (
        "fs_read",
        "home://docs",
        ("home://docs", "home://docs/a"),
        ("home://", "home://docs2", "home://docs/../x"),
    ),
    ("fs_read", "home://docs/", ("home://docs/a",), ("home://docs2",)),
    ("fs_write", "*", ("*", "cwd://", "cwd://x"), ("home://", "/etc")),
    ("fs_write", "/srv/a", ("/srv/a", "/srv/a/b"), ("/srv", "/srv/ab")),
    ("fs_write", "home://a/../b", ("home://a/../b",), ("home://a/../b/c",)),
    ("host_process", "git", ("git", "git status"), ("gitk", "/bin/git")),
    ("identity", "admin", ("admin", "link", "resolve"), ("root",)),
    ("identity", "resolve", ("resolve",), ("link", "admin")),
    ("kv", "a", ("a",), ("a/b", "b")),
    ("identity", "link", ("resolve", "link"), ("admin", "")),
    ("identity", "root", ("root",), ("resolve",)),
    ("net", "", ("",), ("example.com.", "a")),
    ("net_connect", ":*", (":*",), (":80",)),
    ("net_connect", "db:80", ("db:80",), ("db:80*", "db:")),
    ("fs_read", "", ("",), ("/etc", "home://")),
    ("fs_read", "/", ("/", "/etc"), ("home://", "x")),
    ("fs_read", "home://", ("home://x",), ("home:x",)),
    ("host_process", "", ("",), (" x", "git")),
    ("host_process", "git", ("git  x",), ("git\tx",)),
]


@pytest.mark.parametrize(("name", "held", "covered", "beyond"), IMPLICATIONS)
def test_what_an_entry_implies(
    name: str, held: str, covered: tuple[str, ...], beyond: tuple[str, ...]
) -> None:
    asked = Capabilities.from_json({name: [*covered, *beyond]})
    assert asked.beyond(Capabilities.from_json({name: [held]})) == Capabilities.from_json(
        {name: list(beyond)}
    )


def test_flags_beyond_what_is_held() -> None:
    asked = Capabilities(uplink=True, allow_persistent=True, bind_workers=4)
    assert asked.beyond(Capabilities(uplink=True)) == Capabilities(allow_persistent=True)


def test_merged_is_the_union_in_order_and_the_component_sets_the_workers() -> None:
    root = Capabilities(net=("a", "b"), uplink=True, bind_workers=2)
    component = Capabilities(net=("b", "c"), fs_read=("home://",), bind_workers=3)
    assert root.merged(component) == Capabilities(
        net=("a", "b", "c"), uplink=True, fs_read=("home://",), bind_workers=3
    )
    assert component.merged(root).bind_workers == 2
    assert root.merged(EMPTY) == root


def test_json_has_the_key_set_of_the_wire() -> None:
    asked = Capabilities(net_bind=("unix:*",), uplink=True)
    assert asked.to_json() == {
        "allow_persistent": False,
        "allow_prompt_injection": False,
        "bind_workers": None,
        "fs_read": [],
        "fs_write": [],
        "host_process": [],
        "identity": [],
        "kv": [],
        "net": [],
        "net_bind": ["unix:*"],
        "net_connect": [],
        "uplink": True,
    }


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ([], "capabilities"),
        ({"uplink": 1}, "uplink"),
        ({"net": "example.com"}, "net"),
        ({"net": [1]}, "net"),
        ({"bind_workers": True}, "bind_workers"),
        ({"bind_workers": -1}, "bind_workers"),
        ({"bind_workers": "2"}, "bind_workers"),
    ],
)
def test_a_recorded_value_of_the_wrong_type_is_damage(value: object, named: str) -> None:
    with pytest.raises(Corrupt) as caught:
        Capabilities.from_json(value)
    assert (caught.value.code, caught.value.context) == ("capabilities-damaged", {"capability": named})


def test_an_unknown_recorded_key_grants_nothing() -> None:
    assert Capabilities.from_json({"teleport": True, "net": ["a"]}) == Capabilities(net=("a",))


def test_permissions_say_what_where_and_what_it_can_do() -> None:
    asked = Capabilities(fs_read=("home://",), allow_persistent=True)
    assert permissions(asked) == (
        Permission(
            capability="allow_persistent",
            action="Leave programs running",
            scope=(),
            impact="Programs that it starts on this machine can outlive the capsule.",
        ),
        Permission(
            capability="fs_read",
            action="Read files and folders",
            scope=("home://",),
            impact="Sees everything below the listed places, keys and private data among it.",
        ),
    )


def test_every_capability_has_words() -> None:
    everything = Capabilities.from_json(
        {name: True if name in CAPABILITY_NAMES[:3] else ["x"] for name in CAPABILITY_NAMES}
    )
    assert tuple(one.capability for one in permissions(everything)) == CAPABILITY_NAMES
    assert held_names(everything) == CAPABILITY_NAMES


def test_nothing_asked_is_empty_and_workers_grant_nothing() -> None:
    assert EMPTY.is_empty()
    assert Capabilities(bind_workers=3).is_empty()
    assert not Capabilities(kv=("x",)).is_empty()


@given(asked=CAPABILITIES)
def test_json_round_trip(asked: Capabilities) -> None:
    assert Capabilities.from_json(asked.to_json()) == asked


@given(asked=CAPABILITIES, held=CAPABILITIES, more=CAPABILITIES)
def test_holding_more_never_leaves_more_over(
    asked: Capabilities, held: Capabilities, more: Capabilities
) -> None:
    rest, smaller_rest = asked.beyond(held), asked.beyond(held.merged(more))
    assert smaller_rest.beyond(rest).is_empty()


@given(asked=CAPABILITIES, held=CAPABILITIES)
def test_what_is_over_and_what_is_held_make_up_what_is_asked(asked: Capabilities, held: Capabilities) -> None:
    assert asked.beyond(held.merged(asked.beyond(held))).is_empty()
    assert asked.beyond(asked).is_empty()


@given(asked=CAPABILITIES)
def test_against_nothing_everything_is_beyond(asked: Capabilities) -> None:
    assert held_names(asked.beyond(EMPTY)) == held_names(asked)


@pytest.mark.parametrize(
    ("listens", "workers", "count"),
    [
        (("127.0.0.1:80",), 5, 5),
        (("unix:*", "localhost:*"), 2, 2),
        (("127.0.0.1:80",), None, 1),
        (("127.0.0.1:80",), 0, 1),
        (("127.0.0.1:80",), 10_000, MAX_ACCEPT_WORKERS),
        (("unix:*",), 5, 1),
        ((), 5, 1),
    ],
)
def test_workers_are_for_those_that_listen_on_tcp(
    listens: tuple[str, ...], workers: int | None, count: int
) -> None:
    assert Capabilities(net_bind=listens, bind_workers=workers).accept_workers == count
