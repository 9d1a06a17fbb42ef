"""Whose the programs of capsules are: by invocation, quota, call and view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from aos_runtime.errors import Unavailable
from aos_runtime.home import Home
from aos_runtime.host import GuestContext
from aos_runtime.kernel.actor import Generation
from aos_runtime.kernel.budget import Budget
from aos_runtime.kernel.processes import Processes
from aos_runtime.policy.process_rules import ProcessRefused
from aos_runtime.policy.quotas import Quotas
from aos_runtime.programs import Child, ProcessDoor, Tier
from aos_runtime.programs.sandbox import Sandbox
from aos_runtime.programs.walls import Masks
from aos_runtime.store.children import ChildRecords
from aos_runtime.wire.payloads import TOOL_EXECUTE_REQUEST, encode_tool_cancel
from tests.support.guests import FakeInflow, Recorder
from tests.support.installation import wait_until
from tests.support.kernels import ALICE, FakeInstance, cause, make_installed
from tests.support.programs import request

LONG = request("sh", "-c", "sleep 300")


class Stand:
    """The programs of one daemon, without walls."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = Home(folder / "home"), folder / "work"
        self.home.root.mkdir()
        self.work.mkdir()
        records = ChildRecords(self.home)
        masks = Masks(home=self.home.root)
        self.answers: list[Sandbox | Unavailable] = [Sandbox(masks=masks, wall=None, mark=records.mark())]
        self.looks = 0
        self.published: list[tuple[str, str, bytes]] = []
        self.processes = Processes(records, self._look, lambda *event: self.published.append(event))
        self.budget = Budget("alice", Quotas(max_background_processes=1), is_exempt=False)
        self.context = Recorder().context(principal=ALICE)

    def door(self, context: GuestContext | None = None) -> ProcessDoor:
        installed = make_installed("tool")
        held = replace(installed.receipt.capabilities, host_process=("sh",))
        installed = replace(installed, receipt=replace(installed.receipt, capabilities=held))
        return self.processes.door(
            installed, context or self.context, self.budget, lambda *note: None, lambda denial: None
        )

    def serve(self, call_id: str | None) -> None:
        """An invocation by a tool call, or by something else."""
        envelope = msgspec.structs.replace(cause("alice"), workspace=str(self.work))
        if call_id is not None:
            body = msgspec.json.encode(
                {"type": TOOL_EXECUTE_REQUEST, "call_id": call_id, "tool_name": "x", "arguments": {}}
            )
            envelope = msgspec.structs.replace(envelope, kind=TOOL_EXECUTE_REQUEST, body=body)
        self.context.current = envelope

    def cancel(self, *call_ids: str, principal: str = "alice") -> None:
        envelope = msgspec.structs.replace(cause(principal), body=encode_tool_cancel(list(call_ids)))
        self.processes.receive(envelope)

    def _look(self) -> Sandbox:
        self.looks += 1
        answer = self.answers[min(self.looks, len(self.answers)) - 1]
        if isinstance(answer, Unavailable):
            raise answer
        return answer


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path)
    yield made
    made.processes.shut_down()
    made.processes.close()


def ends(child: Child) -> bool:
    return child.wait(30.0, lambda: False)


def test_it_hears_of_cancelled_calls_and_nothing_else() -> None:
    assert Processes.wants("tool.v1.request.cancel")
    assert not Processes.wants("tool.v1.request.cancel.x")


def test_a_cancel_ends_the_children_of_its_principals_call(stand: Stand) -> None:
    stand.budget.limit(Quotas(), is_exempt=False)
    door, children = stand.door(), []
    for call_id in ("a", "b", None):
        stand.serve(call_id)
        children.append(door.start(LONG, Tier.BACKGROUND))
    assert stand.processes.has_children("alice", "a")
    stand.cancel("a", principal="bob")
    stand.processes.receive(cause("alice"))
    assert [one.exit for one in children] == [None, None, None]
    stand.cancel("a", "z")
    assert ends(children[0])
    wait_until(lambda: not stand.processes.has_children("alice", "a"), "it is over")
    assert [one.exit for one in children[1:]] == [None, None]


def test_the_quota_is_the_principals_and_may_change(stand: Stand) -> None:
    stand.serve("a")
    first = stand.door().start(LONG, Tier.BACKGROUND)
    with pytest.raises(ProcessRefused, match="quota"):
        stand.door().start(LONG, Tier.BACKGROUND)
    stand.budget.limit(Quotas(max_background_processes=2), is_exempt=True)
    stand.door().start(LONG, Tier.BACKGROUND)
    first.kill()
    assert ends(first)
    stand.budget.limit(Quotas(max_background_processes=0), is_exempt=True)
    with pytest.raises(ProcessRefused, match="quota"):
        stand.door().start(LONG, Tier.BACKGROUND)


def test_it_starts_in_the_workspace_of_the_invocation(stand: Stand) -> None:
    door = stand.door()
    where = request("sh", "-c", "pwd")

    def said() -> str:
        child = door.start(where, Tier.WAITED)
        assert ends(child)
        return child.drain().stdout.strip()

    assert said() == "/tmp"
    stand.serve("a")
    assert said() == str(stand.work)
    stand.context.is_loop = True  # it serves one caller after the other: it is in none of their workspaces
    assert said() == "/tmp"


def test_walls_are_looked_at_until_there_are_some(stand: Stand) -> None:
    missing = Unavailable("process-sandbox-missing", "there are none", hint="install them")
    bare = stand.answers[0]
    assert isinstance(bare, Sandbox)
    walled = Sandbox(masks=bare.masks, wall="/bwrap", mark=bare.mark)
    stand.answers = [missing, bare, walled, missing]
    with pytest.raises(Unavailable):
        stand.processes.open_sandbox()
    assert stand.processes.open_sandbox() is bare
    assert [stand.processes.open_sandbox() for _ in range(3)] == [walled] * 3
    assert stand.looks == 3


def test_new_limits_do_not_end_what_runs_beside_the_calls() -> None:
    """They hold from the first instance on that is made when nothing is held any more."""
    context = Recorder().context(keeps_resources=True)
    generation = Generation(context, lambda: FakeInstance(lambda call: None, context))
    first = generation.instance()
    handle = context.resources.add("process-handle", FakeInflow())
    assert handle is not None
    generation.renew()
    assert generation.instance() is first
    context.resources.drop("process-handle", handle)
    second = generation.instance()
    assert second is not first
    assert generation.instance() is second
