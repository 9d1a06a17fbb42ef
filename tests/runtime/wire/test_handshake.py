from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from aos_runtime.errors import Denied, PeerFault
from aos_runtime.names import PrincipalName
from aos_runtime.wire.frames import MAX_HANDSHAKE_BYTES
from aos_runtime.wire.handshake import (
    NO_WORKSPACE,
    Identity,
    KeyEntry,
    Rejected,
    Reply,
    ServerHandshake,
    workspace_problem,
)
from aos_runtime.wire.handshake_client import ClientHandshake, ServerHello, signed_text

TOKEN = "ab" * 32
NONCE = bytes(range(32))
KEY = SigningKey(b"k" * 32)
OTHER_KEY = SigningKey(b"o" * 32)
ENTRY = KeyEntry("0123456789abcdef", bytes(KEY.verify_key).hex())
FAILED = {
    "status": "error",
    "protocol_version": 1,
    "server_version": "2026.10.1",
    "reason": "authentication failed",
}


def find_keys(principal: PrincipalName) -> tuple[KeyEntry, ...] | None:
    return (KeyEntry("ffffffffffffffff", "zz"), ENTRY) if principal == "default" else None


def server() -> ServerHandshake:
    return ServerHandshake(TOKEN, "2026.10.1", find_keys, NONCE)


def sign(text: bytes) -> bytes:
    return KEY.sign(text).signature


def request(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "token": TOKEN,
        "protocol_version": 1,
        "client_version": "probe",
        "claimed_principal": None,
        "signature": None,
    }
    return json.dumps({**fields, **changes}).encode()


def answer(reply: Reply) -> dict[str, Any]:
    value = json.loads(reply.frame)
    assert isinstance(value, dict)
    return value


def signature(principal: str = "default", key: SigningKey = KEY, nonce: str = NONCE.hex()) -> str:
    return key.sign(signed_text(principal, nonce)).signature.hex()


def challenged() -> ServerHandshake:
    handshake = server()
    assert handshake.receive(request(claimed_principal="default")).outcome is None
    return handshake


def test_anonymous_takes_one_exchange() -> None:
    reply = server().receive(request())
    assert answer(reply) == {"status": "ok", "protocol_version": 1, "server_version": "2026.10.1"}
    assert reply.outcome == Identity(PrincipalName("anonymous"), None, "probe", None)
    assert reply.outcome.verified is False
    assert reply.outcome.device_key_id is None


def test_a_claim_is_challenged_and_a_signature_proves_it() -> None:
    handshake = server()
    first = handshake.receive(request(claimed_principal="default"))
    assert answer(first) == {
        "status": "ok",
        "protocol_version": 1,
        "server_version": "2026.10.1",
        "challenge": NONCE.hex(),
    }
    second = handshake.receive(request(claimed_principal="default", signature=signature()))
    assert answer(second) == {"status": "ok", "protocol_version": 1, "server_version": "2026.10.1"}
    assert second.outcome == Identity(PrincipalName("default"), ENTRY, "probe", None)
    assert second.outcome.verified is True
    assert second.outcome.device_key_id == "0123456789abcdef"


def test_the_case_of_the_hex_does_not_matter() -> None:
    proof = request(claimed_principal="default", signature=signature().upper())
    assert isinstance(challenged().receive(proof).outcome, Identity)


def test_signed_text_is_the_published_one() -> None:
    assert signed_text("default", "00ff") == b"astrid-principal-auth:v1:default:00ff"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"token": "cd" * 32}, "wrong or missing token"),
        ({"token": TOKEN[:-1]}, "wrong or missing token"),
        ({"token": None}, "wrong or missing token"),
        ({"token": "\ud800"}, "wrong or missing token"),
        ({"claimed_principal": "no/name"}, "the claimed principal is no principal name"),
        ({"claimed_principal": ""}, "the claimed principal is no principal name"),
        ({"claimed_principal": 7}, "the claimed principal is no principal name"),
    ],
)
def test_the_peer_is_never_told_the_cause(changes: dict[str, object], cause: str) -> None:
    reply = server().receive(request(**changes))
    assert (answer(reply), reply.outcome) == (FAILED, Rejected(cause))


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"signature": None}, "no signature for principal default"),
        ({"signature": "00" * 64}, "no key of principal default made the signature"),
        ({"signature": "zz" * 64}, "no signature for principal default"),
        ({"signature": signature()[:-2]}, "no signature for principal default"),
        ({"signature": signature(key=OTHER_KEY)}, "no key of principal default made the signature"),
        ({"signature": signature(nonce="00" * 32)}, "no key of principal default made the signature"),
        ({"signature": signature("admin")}, "no key of principal default made the signature"),
        ({"claimed_principal": "admin", "signature": signature("admin")}, "the claimed principal changed"),
        ({"claimed_principal": None}, "the claimed principal changed"),
        ({"token": "cd" * 32, "signature": signature()}, "wrong or missing token"),
    ],
)
def test_a_bad_proof_is_refused(changes: dict[str, object], cause: str) -> None:
    reply = challenged().receive(request(**{"claimed_principal": "default", **changes}))
    assert (answer(reply), reply.outcome) == (FAILED, Rejected(cause))


def test_whether_a_principal_exists_is_not_told() -> None:
    handshake = server()
    first = handshake.receive(request(claimed_principal="nobody"))
    assert answer(first)["challenge"] == NONCE.hex()
    second = handshake.receive(request(claimed_principal="nobody", signature=signature("nobody")))
    assert (answer(second), second.outcome) == (FAILED, Rejected("principal nobody cannot authenticate"))


def test_the_version_is_checked_before_the_token() -> None:
    reply = server().receive(request(protocol_version=9, token="no"))
    assert answer(reply) == {
        "status": "error",
        "protocol_version": 1,
        "server_version": "2026.10.1",
        "reason": "Protocol version mismatch (client=9, server=1). Restart the daemon with `aos restart`.",
    }
    assert reply.outcome == Rejected("protocol version 9")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        b"[" * 4000,
        request(protocol_version=True),
        request(protocol_version="1"),
        request(protocol_version=1.0),
        request(protocol_version=-1),
        request(protocol_version=2**40),
        request(client_version=None),
        b'{"protocol_version":' + b"1" * 4000 + b"}",
    ],
)
def test_what_is_no_handshake_is_a_fault(frame: bytes) -> None:
    with pytest.raises(PeerFault) as fault:
        server().receive(frame)
    assert fault.value.code == "handshake-malformed"


@given(st.binary(max_size=200))
def test_garbage_is_only_a_fault(frame: bytes) -> None:
    for receive in (server().receive, ClientHandshake(TOKEN, "0.1.0").receive):
        with pytest.raises(PeerFault):
            receive(frame)


def test_a_long_client_version_is_cut() -> None:
    outcome = server().receive(request(client_version="v" * 500)).outcome
    assert isinstance(outcome, Identity)
    assert outcome.client_version == "v" * 64


def test_the_workspace_of_the_first_frame_is_bound() -> None:
    handshake = server()
    handshake.receive(request(claimed_principal="default", workspace="/home/ada/project"))
    second = request(claimed_principal="default", signature=signature(), workspace="/etc")
    outcome = handshake.receive(second).outcome
    assert outcome == Identity(PrincipalName("default"), ENTRY, "probe", "/home/ada/project")
    anonymous = server().receive(request(workspace="/srv")).outcome
    assert anonymous == Identity(PrincipalName("anonymous"), None, "probe", "/srv")


@pytest.mark.parametrize(
    ("workspace", "problem"),
    [
        ("project", "workspace must be an absolute path"),
        ("", "workspace must be an absolute path"),
        (5, "workspace must be an absolute path"),
        ("/a\0b", "workspace must be an absolute path"),
        ("/a/../b", "workspace must be a canonical path, without `.`, `..` or doubled slashes"),
        ("/a/", "workspace must be a canonical path, without `.`, `..` or doubled slashes"),
        ("//a", "workspace must be a canonical path, without `.`, `..` or doubled slashes"),
        ("/" + "a" * 2048, "workspace is longer than 2048 bytes"),
    ],
)
def test_a_workspace_that_cannot_be_one_is_refused_with_its_reason(workspace: object, problem: str) -> None:
    assert workspace_problem(workspace) == problem
    reply = server().receive(request(workspace=workspace))
    assert (answer(reply)["reason"], reply.outcome) == (problem, Rejected(problem))


def test_saying_that_there_is_none_is_not_saying_nothing() -> None:
    told = server().receive(request(workspace=None)).outcome
    silent = server().receive(request()).outcome
    assert isinstance(told, Identity) and isinstance(silent, Identity)
    assert (told.workspace, silent.workspace) == (NO_WORKSPACE, None)


def test_a_workspace_is_looked_at_only_after_the_token() -> None:
    assert answer(server().receive(request(workspace="no", token="no"))) == FAILED


def test_client_and_server_agree_as_anonymous() -> None:
    client = ClientHandshake(TOKEN, "0.1.0", workspace="/w")
    reply = server().receive(client.start())
    assert reply.outcome == Identity(PrincipalName("anonymous"), None, "0.1.0", "/w")
    assert client.receive(reply.frame) == ServerHello("2026.10.1", 1)


def test_client_and_server_agree_with_a_key() -> None:
    client, daemon = ClientHandshake(TOKEN, "0.1.0", "default", sign, "/w"), server()
    proof = client.receive(daemon.receive(client.start()).frame)
    assert isinstance(proof, bytes)
    assert len(proof) < MAX_HANDSHAKE_BYTES
    reply = daemon.receive(proof)
    assert reply.outcome == Identity(PrincipalName("default"), ENTRY, "0.1.0", "/w")
    assert client.receive(reply.frame) == ServerHello("2026.10.1", 1)


def test_without_a_key_the_client_is_anonymous() -> None:
    assert json.loads(ClientHandshake(TOKEN, "0.1.0", "default").start()) == {
        "token": TOKEN,
        "protocol_version": 1,
        "client_version": "0.1.0",
        "claimed_principal": None,
        "workspace": None,
        "signature": None,
    }


def test_dmn_17_the_client_names_both_versions() -> None:
    reply = {"status": "error", "protocol_version": 2, "server_version": "2027.1.0", "reason": "x"}
    with pytest.raises(PeerFault) as fault:
        ClientHandshake(TOKEN, "0.1.0").receive(json.dumps(reply).encode())
    assert fault.value.code == "protocol-version"
    assert fault.value.message == (
        "this client is 0.1.0 with protocol 1, the running daemon is 2027.1.0 with protocol 2"
    )
    assert fault.value.hint == "run `aos restart`"


def test_the_client_says_what_refused_it() -> None:
    client = ClientHandshake(TOKEN, "0.1.0", "default", sign)
    with pytest.raises(Denied) as denied:
        client.receive(json.dumps(FAILED).encode())
    assert denied.value.code == "authentication-failed"
    with pytest.raises(Denied) as refused:
        client.receive(json.dumps({**FAILED, "reason": "workspace must be an absolute path"}).encode())
    assert refused.value.code == "handshake-refused"
    assert refused.value.message == "the daemon refused the connection: workspace must be an absolute path"


HELLO = {"status": "ok", "protocol_version": 1, "server_version": "y"}


@pytest.mark.parametrize(
    "reply",
    [
        HELLO,  # no challenge: it would bind us to another principal than we asked for
        {**HELLO, "challenge": "a" * 63},
        {**HELLO, "challenge": "text to sign" + "a" * 52},
        {**HELLO, "challenge": 5},
        {**HELLO, "protocol_version": None},
        {"status": "ok"},
    ],
)
def test_the_client_signs_only_a_challenge_and_only_once(reply: dict[str, object]) -> None:
    client = ClientHandshake(TOKEN, "0.1.0", "default", sign)
    with pytest.raises(PeerFault):
        client.receive(json.dumps(reply).encode())


def test_the_client_refuses_a_second_challenge() -> None:
    client = ClientHandshake(TOKEN, "0.1.0", "default", sign)
    challenge = json.dumps({**HELLO, "challenge": "0a" * 32}).encode()
    client.receive(challenge)
    with pytest.raises(PeerFault):
        client.receive(challenge)
