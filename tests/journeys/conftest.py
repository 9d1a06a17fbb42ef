"""What the journeys share: built capsules (once per machine) and a home that is cleaned up whatever
happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation import Aos
from tests.support.projects import build_project


@pytest.fixture(scope="session")
def hello_capsule() -> Path:
    """The scaffold as it is: tool `hello`."""
    return build_project("hello")


@pytest.fixture(scope="session")
def twin_capsule() -> Path:
    """The scaffold under another name: the same tool `hello`."""
    return build_project("twin")


@pytest.fixture(scope="session")
def sampler_capsule() -> Path:
    """Tools count (state), note (log), explode (panic), refuse (error), repeat (size)."""
    return build_project("sampler")


@pytest.fixture(scope="session")
def listener_capsule() -> Path:
    """Tools try_subscribe, hold, ask, burst, deliver: what a handler does with subscriptions."""
    return build_project("listener")


@pytest.fixture(scope="session")
def looper_capsule() -> Path:
    """A run loop that echoes, ticks, and serves the tool loop_state."""
    return build_project("looper")


@pytest.fixture(scope="session")
def stumbler_capsule() -> Path:
    """A run loop that ends as its env MODE says: early, late, mute, panic, spin or steady."""
    return build_project("stumbler")


@pytest.fixture(scope="session")
def culprit_capsule() -> Path:
    """Tools trap, spin, allocate, flood, publish, keep, kept, doze: what a guest can do to a daemon."""
    return build_project("culprit")


@pytest.fixture
def aos(tmp_path: Path) -> Iterator[Aos]:
    """`aos` in a new home; its daemon is ended when the test is."""
    installation = Aos(root=tmp_path)
    installation.folder.mkdir()
    yield installation
    installation.close()
