"""Two routers and two capsules with the same counting tool: one call counts one (ADR 0003)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from aos_runtime.capsule.archive import iter_members, scan_archive
from aos_runtime.capsule.provenance import PROVENANCE_FILE
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store.kv import KvStore
from aos_runtime.store.layout import open_home
from aos_runtime.store.receipts import ApprovalSource
from bench.capsules import BUNDLED, Original, write_copy
from tests.support.sockets import connected, running
from tests.support.tool_guests import install

pytestmark = pytest.mark.journey

CALLS = 50
COUNTERS = (CapsuleName("sampler"), CapsuleName("sampler-two"))


def copy_of(archive: Path, name: str, copy: str, folder: Path) -> Path:
    """Another capsule with the same code, unsigned."""
    data = io.BytesIO(archive.read_bytes())
    inventory = scan_archive(data)
    data.seek(0)
    members = tuple(one for one in iter_members(data, inventory) if one.path != PROVENANCE_FILE)
    return write_copy(Original(members=members, name=name, tool=""), copy, folder)


def counts(home: Home) -> list[int]:
    """What each counter has in its state."""
    found = []
    with KvStore(home.state_db) as store:
        for name in COUNTERS:
            state = store.space(DEFAULT_PRINCIPAL, name).get("__state")
            found.append(0 if state is None else json.loads(state)["count"])
    return found


@pytest.mark.parametrize("routers", [("router-two",), ("router-two", "router-three")], ids=["two", "three"])
def test_one_call_counts_one(tmp_path: Path, sampler_capsule: Path, routers: tuple[str, ...]) -> None:
    home = Home(tmp_path / "home")
    open_home(home, create=True)
    archives = [sampler_capsule, copy_of(sampler_capsule, "sampler", "sampler-two", tmp_path)]
    archives += [copy_of(BUNDLED / "router.capsule", "router", name, tmp_path) for name in routers]
    for archive in archives:
        install(home, tmp_path, archive.stem, archive.read_bytes(), source=ApprovalSource.EXPLICIT)
    with running(home), connected(home) as client:
        names = client.request("ListCapsules")["data"]
        assert {"router", *routers, *COUNTERS} <= set(names)
        for number in range(1, CALLS + 1):
            reply = client.tools("call", {"name": "count"})
            assert (reply["status"], reply["data"]["is_error"]) == ("Success", False), reply
            assert reply["data"]["content"] == str(number)
    assert sorted(counts(home)) == [0, CALLS]
