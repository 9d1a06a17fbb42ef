"""An instance that holds file rights serves one workspace in its life."""

from __future__ import annotations

import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.kernel.actor import Generation
from tests.support.guests import Recorder
from tests.support.kernels import FakeInstance


@pytest.fixture
def made() -> list[FakeInstance]:
    return []


def generation(made: list[FakeInstance], capabilities: Capabilities) -> Generation:
    context = Recorder().context(capabilities=capabilities)

    def open_instance() -> FakeInstance:
        made.append(FakeInstance(lambda _call: None, context))
        return made[-1]

    return Generation(context, open_instance)


@pytest.mark.parametrize("rights", [Capabilities(fs_read=("cwd://",)), Capabilities(fs_write=("home://",))])
def test_another_workspace_gets_another_instance(made: list[FakeInstance], rights: Capabilities) -> None:
    served = generation(made, rights)
    assert served.instance("/a") is served.instance("/a")
    assert served.instance("/b") is not made[0]
    assert made[0].closed and not made[1].closed
    assert served.instance(None) is made[2] and made[1].closed
    assert served.instance("/b") is made[3]


def test_without_file_rights_one_instance_serves_all(made: list[FakeInstance]) -> None:
    served = generation(made, Capabilities(net=("*",)))
    assert served.instance("/a") is served.instance("/b") is served.instance(None)
    assert len(made) == 1
