"""Recorded rows of the published runtime, replayed against a real daemon: same topic, status, key set and
types.

The rows are copied from a recording of the published daemon 2026.10.1
(tests/golden/wire/transcript.jsonl; tokens, signatures and ids were blanked there).  Allowed differences:
additive keys, the program's name in a text, and an unknown method, which is answered here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.home import Home
from tests.support.sockets import NIL, Client, running
from tests.support.tool_guests import archive_of, install, tool_guest, without_bundled

RECORDING = Path(__file__).parents[1] / "golden" / "wire" / "transcript.jsonl"
ROWS = {row["row"]: row for row in map(json.loads, RECORDING.read_text(encoding="utf-8").splitlines())}
HELLO = (
    '{"tools":[{"name":"hello","description":"Greet someone.",'
    '"input_schema":{"type":"object","properties":{"name":{"type":"string"}}}}]}'
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("transcript")
    made = Home(folder / "home")
    without_bundled(made)
    rows = (
        '"tool.v1.execute.hello" = { wit = "opaque", handler = "tool_execute_hello" }\n'
        '"tool.v1.request.describe" = { wit = "opaque", handler = "tool_describe" }\n'
    )
    extra = '\n[capabilities]\nfs_read = ["home://"]\n[[command]]\nname = "greet"\ndescription = "Greets"\n'
    install(made, folder, "my-capsule", archive_of(made, "my-capsule", tool_guest(HELLO), rows, extra=extra))
    with running(made):
        yield made


@pytest.fixture
def anonymous(home: Home) -> Iterator[Client]:
    with Client(home) as client:
        client.hello()
        yield client


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    with Client(home) as connected:
        connected.authenticate()
        yield connected


def assert_same_shape(ours: Any, theirs: Any, path: str = "$") -> None:
    """Every recorded key is there with a value of the same type; lists are compared by their first elements.

    Ours may have more keys, and a value where the recorded one was not known.
    """
    if theirs is None:
        return
    assert type(ours) is type(theirs), f"{path}: {ours!r} is not like {theirs!r}"
    if isinstance(theirs, dict):
        missing = theirs.keys() - ours.keys()
        assert not missing, f"{path} lacks {sorted(missing)}"
        for key, value in theirs.items():
            assert_same_shape(ours[key], value, f"{path}.{key}")
    if isinstance(theirs, list) and theirs and ours:
        assert_same_shape(ours[0], theirs[0], f"{path}[0]")


def replay(client: Client, row: int) -> tuple[list[Any], list[Any]]:
    """Send what was sent in a row; what came back here, and what was recorded."""
    sent, received = ROWS[row]["sent"], ROWS[row]["received"]
    client.send(sent)
    frames = [client.read()]
    while frames[-1]["topic"] != received[-1]["topic"]:
        frames.append(client.read())
    return frames, received


def assert_replayed(client: Client, row: int) -> Any:
    """Same topics in the same order, same envelope, same status, same shape of data; the last payload."""
    ours, theirs = replay(client, row)
    assert [frame["topic"] for frame in ours] == [frame["topic"] for frame in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert our.keys() == their.keys()
        assert (our["principal"], our["source_id"]) == (their["principal"], their["source_id"])
        assert our["payload"].get("status") == their["payload"].get("status")
        assert_same_shape(our["payload"], their["payload"])
    return ours[-1]["payload"]


def test_row_0_the_anonymous_handshake(home: Home) -> None:
    with Client(home) as client:
        assert client.hello() == ROWS[0]["received"]


def test_row_1_an_anonymous_client_may_not_ask_for_the_status(anonymous: Client) -> None:
    ours, theirs = replay(anonymous, 1)
    assert ours == theirs


@pytest.mark.parametrize("row", [2, 20, 23])
def test_rows_2_3_the_handshake_of_a_principal(home: Home, row: int) -> None:
    with Client(home) as client:
        first, second = client.authenticate()
    challenge = first.pop("challenge")
    recorded = dict(ROWS[row]["received"])
    recorded.pop("challenge")
    assert len(bytes.fromhex(challenge)) == 32
    assert first == recorded
    assert second == ROWS[row + 1]["received"]


def test_row_4_status(client: Client) -> None:
    data = assert_replayed(client, 4)["data"]
    assert (data["connected_clients"], data["connections_by_principal"]) == (
        1,
        [{"count": 1, "principal": "default"}],
    )
    assert (data["version"], data["ephemeral"], data["loaded_capsules"]) == (
        "2026.10.1",
        False,
        ["my-capsule"],
    )


def test_row_5_the_names_of_the_capsules(client: Client) -> None:
    assert assert_replayed(client, 5)["data"] == ["my-capsule"]


def test_row_6_the_commands_of_the_capsules(client: Client) -> None:
    assert assert_replayed(client, 6)["data"] == [
        {"name": "greet", "description": "Greets", "provider_capsule": "my-capsule"}
    ]


def test_row_7_the_metadata_of_the_capsules(client: Client) -> None:
    [row] = assert_replayed(client, 7)["data"]
    recorded = next(one for one in ROWS[7]["received"][0]["payload"]["data"] if one["name"] == "my-capsule")
    assert row.keys() == recorded.keys()
    assert_same_shape(row, recorded)
    assert row["interceptor_events"] == recorded["interceptor_events"]
    assert row["capabilities"] == recorded["capabilities"]


def test_row_8_whether_an_agent_would_answer(client: Client) -> None:
    data = assert_replayed(client, 8)["data"]
    assert (data["ready"], data["loaded_capsules"]) == (False, ["my-capsule"])


def test_row_9_the_agents(client: Client) -> None:
    [row] = assert_replayed(client, 9)["data"]
    assert (row["principal"], row["enabled"], row["groups"]) == ("default", True, ["admin"])


def test_row_10_the_quotas(client: Client) -> None:
    assert assert_replayed(client, 10)["data"] == ROWS[10]["received"][0]["payload"]["data"]


def test_row_11_the_groups(client: Client) -> None:
    rows = assert_replayed(client, 11)["data"]
    recorded = ROWS[11]["received"][0]["payload"]["data"]

    def facts(row: Any) -> tuple[Any, ...]:
        return row["name"], row["capabilities"], row["builtin"], row["unsafe_admin"]

    assert [facts(row) for row in rows] == [facts(row) for row in recorded]


def test_row_12_the_use(client: Client) -> None:
    data = assert_replayed(client, 12)["data"]
    assert (data["principal"], data["exempt"]) == ("default", True)
    assert data["memory_bytes_current_total"] <= data["memory_bytes_peak_total"]


def test_row_13_how_much_is_on_record(client: Client) -> None:
    data = assert_replayed(client, 13)["data"]
    assert (data["cap_entries"], data["cap_bytes"], data["degraded"]) == (1_000_000, 1 << 30, False)


def test_row_14_a_reload_is_announced_and_answered(client: Client) -> None:
    ours, theirs = replay(client, 14)
    assert [frame["topic"] for frame in ours] == [frame["topic"] for frame in theirs]
    assert ours[-1] == theirs[-1]
    event, recorded = ours[0], theirs[0]
    assert event.keys() == recorded.keys()
    assert event["payload"].keys() == recorded["payload"].keys()
    [row] = event["payload"]["capsules"]
    recorded_row = next(one for one in recorded["payload"]["capsules"] if one["name"] == "my-capsule")
    assert row.keys() == recorded_row.keys()
    assert recorded_row["meta"].keys() <= row["meta"].keys()
    assert row["meta"].keys() - recorded_row["meta"].keys() <= {"signer", "signature"}
    assert [tool["name"] for tool in row["meta"]["tools"]] == ["hello"]
    assert row["meta"]["tools"][0].keys() == recorded_row["meta"]["tools"][0].keys()


@pytest.mark.parametrize("row", [15, 17])
def test_rows_15_and_17_refusals_in_the_same_words(client: Client, row: int) -> None:
    """Beside the words stands what to do, which published clients pass over."""
    ours, theirs = replay(client, row)
    told = ours[-1]["payload"].pop("error")
    assert ours == theirs
    assert told["code"] and told["hint"]


def test_row_16_an_unknown_method_is_answered_here(client: Client) -> None:
    assert client.request("NoSuchMethod") == {"status": "Error", "data": "unknown method 'NoSuchMethod'"}


def test_rows_18_and_19_a_topic_that_clients_may_not_use(client: Client) -> None:
    client.send(ROWS[18]["sent"])
    refusal, recorded = client.read(), ROWS[18]["received"]
    assert refusal.keys() == recorded.keys()
    assert len(refusal.pop("request_owner")) == len(recorded["request_owner"])
    assert refusal == {key: value for key, value in recorded.items() if key != "request_owner"}
    with pytest.raises(EOFError):
        client.read()


def test_row_22_a_prefix_of_three_mebibytes_ends_the_connection(client: Client) -> None:
    client.sock.sendall((3 << 20).to_bytes(4, "big"))
    with pytest.raises(EOFError):
        client.read()


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\xff\xff", json.dumps({"topic": "a", "source_id": NIL}).encode()]
)
def test_row_25_malformed_json_ends_the_connection(client: Client, body: bytes) -> None:
    client.send_bytes(body)
    with pytest.raises(EOFError):
        client.read()


def test_row_26_a_wrong_token(home: Home) -> None:
    with Client(home) as client:
        assert client.hello(token="0" * 64) == ROWS[26]["received"]
        with pytest.raises(EOFError):
            client.read()


def test_row_27_another_protocol_version(home: Home) -> None:
    with Client(home) as client:
        recorded = json.loads(json.dumps(ROWS[27]["received"]).replace("astrid restart", "aos restart"))
        assert client.hello(protocol_version=9) == recorded
        with pytest.raises(EOFError):
            client.read()
