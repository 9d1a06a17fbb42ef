"""A run loop that failed: the line in the log and the event on the bus."""

from __future__ import annotations

import json

import pytest

from aos_runtime.kernel.runloop import RunLoop
from aos_runtime.kernel.supervise import Supervisor
from aos_runtime.names import CapsuleName, PrincipalName
from tests.support.kernels import ALICE, Bench, FakeJournal


@pytest.mark.parametrize(
    ("delay_s", "end"),
    [
        (2.0, "restart 1 of 5 in 2 s"),
        (None, "disabled after 5 restarts, until it is installed anew or aos restarts"),
    ],
)
def test_each_failure_is_a_line_and_an_event_to_the_capsules_principal(
    delay_s: float | None, end: str
) -> None:
    told: list[tuple[PrincipalName, str, object]] = []
    journal = FakeJournal()
    supervisor = Supervisor(
        journal, lambda principal, topic, body: told.append((principal, topic, json.loads(body)))
    )
    loop = RunLoop(
        name=CapsuleName("looper"),
        version="0.1.0",
        principal=ALICE,
        open_instance=lambda attempt: pytest.fail("nothing is started here"),
        subscriptions=Bench().kernel.subscriptions,
    )
    loop.restarts.count = 1
    supervisor.failed(loop, "it ended: no config", delay_s)
    body = {"capsule_id": "looper", "principal": "alice", "reason": "it ended: no config"}
    assert told == [(ALICE, "astrid.v1.health.failed", body)]
    line = f"run loop of capsule 'looper' 0.1.0 failed: it ended: no config; {end}"
    assert journal.lines == [("_daemon", "error", line)]
