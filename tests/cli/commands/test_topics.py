"""`aos topics match`: every word of it, without a daemon."""

from __future__ import annotations

from aos_runtime.home import Home
from tests.cli.conftest import RunAos


def test_the_table(run_aos: RunAos, home: Home) -> None:
    ended = run_aos("topics", "match", "tool.v1.execute.a.result", "tool.v1.*")
    assert ended.out == (
        "MATCHER         VERDICT  WHY\n"
        "delivery        yes      the last `*` takes `execute.a.result`\n"
        "publish-acl     yes      the last `*` takes `execute.a.result`\n"
        "subscribe-acl   yes      the last `*` takes `execute.a.result`\n"
        "dispatch        no       "
        "the pattern has 3 segments and the topic 5 segments; `*` takes exactly one\n"
        "subscribe-gate  yes      the pattern may be subscribed to at run time, and matches\n"
    )
    assert ended.err == "A client may publish on the topic: no, topic is not allowed from local clients.\n"
    assert ended.status == 0
    assert not home.root.exists()


def test_the_document_and_a_negative_answer(run_aos: RunAos) -> None:
    ended = run_aos("topics", "match", "a.c", "a.b", "--json")
    why = "segment 2 is `c`, and the pattern wants `b`"
    names = ("delivery", "publish-acl", "subscribe-acl", "dispatch", "subscribe-gate")
    assert ended.json == {
        "topic": "a.c",
        "pattern": "a.b",
        "matches": dict.fromkeys(names, False),
        "why": dict.fromkeys(names, why),
        "client_may_publish": False,
        "client_refusal": "topic is not allowed from local clients",
    }
    assert ended.status == 1


def test_a_surface_of_the_user_is_named(run_aos: RunAos) -> None:
    ended = run_aos("topics", "match", "tool.v1.execute.hello", "tool.v1.execute.*")
    assert "It is a surface of the user (tool): one capsule of each principal is bound to it.\n" in ended.err


def test_control_characters_are_escaped(run_aos: RunAos) -> None:
    ended = run_aos("topics", "match", "a.\x1b[31mb", "a.c")
    assert "\x1b" not in ended.out + ended.err
    assert "segment 2 is `\\x1b[31mb`" in ended.out
