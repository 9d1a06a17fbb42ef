"""kernel.hooks: what a hook's question comes to, for every way in which it may end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from aos_runtime.errors import Conflict
from aos_runtime.home import Home
from aos_runtime.host import Code, Err, GuestContext
from aos_runtime.host.context import ElicitQuestion
from aos_runtime.host.factors import elicit as factor
from aos_runtime.kernel import hooks
from aos_runtime.kernel.elicits import Elicit, ElicitAnswer, Reached
from aos_runtime.kernel.hooks import HookRun
from aos_runtime.names import DEFAULT_PRINCIPAL, Digest
from aos_runtime.store.stage import Stage, stage_source
from tests.support.capsules import make_archive, write_capsule
from tests.support.guests import FakeKv
from tests.support.kernels import FakeJournal, fixed_now

KEY = "API_KEY"
WRITES = '[capabilities]\nfs_write = ["home://", "/tmp"]\n'
Ask = Callable[..., Any]


class Hook:
    """One staged capsule whose hook is a function of the test; `notes` is what was put on record."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage = stage
        self.notes: list[tuple[str, str, str | None]] = []
        self._monkeypatch = monkeypatch

    def run(self, body: Callable[[GuestContext], None], elicit: Elicit | None) -> None:
        class Instance:
            def __init__(self, _code: object, context: GuestContext) -> None:
                self.context = context

            def lifecycle(self, _hook: str) -> None:
                body(self.context)

            def close(self) -> None:
                return None

        self._monkeypatch.setattr(hooks, "Instance", Instance)
        run = HookRun(
            self.stage,
            "astrid-install",
            space=FakeKv(),
            journal=FakeJournal(),
            publish=lambda _topic, _payload: None,
            elicit=elicit,
            note_call=lambda call, key, error: self.notes.append((call, key, error)),
        )
        run.run(cast(Code, None), Digest("ab" * 32))

    def ask(self, kind: str, answer: ElicitAnswer | None, **question: Any) -> Any:
        """What the guest is told; `answer` None: nobody can be asked."""
        told: list[Any] = []
        request = {"kind": kind, "key": KEY, "description": "", "options": None, "default-value": None}
        self.run(
            lambda context: told.append(factor.elicit(context, request | question)),
            None if answer is None else lambda _capsule, _question: answer,
        )
        return told[0]


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    archive = write_capsule(tmp_path / "demo.capsule", make_archive(extra=WRITES))
    with stage_source(Home(tmp_path / "aos"), DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage:
        yield Hook(stage, monkeypatch)


def said(value: str | None = None, values: tuple[str, ...] | None = None) -> ElicitAnswer:
    return ElicitAnswer(Reached.ANSWERED, value, values)


@pytest.mark.parametrize(
    ("kind", "answer", "case", "payload"),
    [
        ("text", said("Rome"), "value", "Rome"),
        ("text", said(""), "value", ""),
        ("array", said(values=("a", "b")), "values", ["a", "b"]),
        ("array", said("a"), "values", ["a"]),
        ("secret", said("s3cret"), "secret-stored", None),
    ],
)
def test_an_answer(hook: Hook, kind: str, answer: ElicitAnswer, case: str, payload: object) -> None:
    assert hook.ask(kind, answer) == (case, payload)
    assert hook.notes == [("elicit", KEY, None)], "that it was asked, not what was answered"


@pytest.mark.parametrize(
    ("kind", "answer", "case"),
    [
        ("text", None, "cancelled"),
        ("text", said(), "cancelled"),
        ("text", ElicitAnswer(Reached.TIMEOUT), "timeout"),
        ("text", said("a\0b"), "invalid-input"),
        ("secret", said(""), "invalid-input"),
        ("secret", said("x" * (64 * 1024 + 1)), "invalid-input"),
        ("text", said(values=("a",)), "invalid-input"),
    ],
)
def test_a_question_without_an_answer(hook: Hook, kind: str, answer: ElicitAnswer | None, case: str) -> None:
    assert hook.ask(kind, answer) == Err(case)
    assert hook.notes == [("elicit", KEY, case)]
    assert hook.stage.read_offered_env().secrets == {}


def test_a_choice_is_one_of_those_that_were_offered(hook: Hook) -> None:
    assert hook.ask("select", said("a"), options=["a", "b"]) == ("value", "a")
    assert hook.ask("select", said("c"), options=["a", "b"]) == Err("invalid-input")


def test_a_secret_is_there_at_once_for_the_hook_and_for_the_commit(hook: Hook) -> None:
    seen: list[object] = []

    def body(context: GuestContext) -> None:
        assert context.elicit is not None and context.has_secret is not None
        seen.append(context.has_secret(KEY))
        seen.append(context.elicit(ElicitQuestion("secret", KEY, "", (), None)))
        seen.extend((context.has_secret(KEY), context.config(KEY)))

    hook.run(body, lambda _capsule, _question: said("s3cret"))
    assert seen == [False, "", True, "s3cret"]
    assert hook.stage.read_offered_env().secrets == {KEY: "s3cret"}


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_the_files_of_a_hook_that_fails_are_as_they_were(hook: Hook, is_abandoned: bool) -> None:
    home = hook.stage.home.principal(DEFAULT_PRINCIPAL)
    home.mkdir(parents=True)
    (home / "kept.txt").write_text("before")

    def body(context: GuestContext) -> None:
        files = context.files
        assert files is not None and context.elicit is not None and context.log is not None
        files.write("home://kept.txt", b"after", append=False)
        files.make_folder("home://made/below", with_parents=True)
        files.write("home://made/new.txt", b"x", append=False)
        files.write("/tmp/new.txt", b"x", append=False)
        assert (home / "kept.txt").read_text() == "after"
        if is_abandoned:
            context.elicit(ElicitQuestion("text", KEY, "", (), None))
        else:
            context.log("error", "install hook failed: no")

    code = "install-abandoned" if is_abandoned else "lifecycle-hook-failed"
    with pytest.raises(Conflict) as failed:
        hook.run(body, lambda _capsule, _question: ElicitAnswer(Reached.GONE))
    assert failed.value.code == code
    names = sorted(path.relative_to(home).as_posix() for path in home.rglob("*"))
    assert (names, (home / "kept.txt").read_text()) == ([".config", "kept.txt"], "before")
    assert list(hook.stage.home.scratch(DEFAULT_PRINCIPAL).iterdir()) == []


def test_the_files_of_a_hook_that_succeeds_stay(hook: Hook) -> None:
    def body(context: GuestContext) -> None:
        assert context.files is not None
        context.files.write("home://new.txt", b"x", append=False)

    hook.run(body, None)
    assert (hook.stage.home.principal(DEFAULT_PRINCIPAL) / "new.txt").read_bytes() == b"x"


def test_who_leaves_a_question_gives_the_install_up_and_is_asked_nothing_more(hook: Hook) -> None:
    asked: list[str] = []

    def leave(_capsule: str, question: ElicitQuestion) -> ElicitAnswer:
        asked.append(question.key)
        return ElicitAnswer(Reached.GONE)

    def body(context: GuestContext) -> None:
        assert context.elicit is not None
        for key in ("ONE", "TWO"):
            assert context.elicit(ElicitQuestion("text", key, "", (), None)) == Err("cancelled")

    with pytest.raises(Conflict) as caught:
        hook.run(body, leave)
    assert (caught.value.code, asked) == ("install-abandoned", ["ONE"])
