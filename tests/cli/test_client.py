"""aos_cli.client against a fake daemon: what is said where it does not answer (LST-03, DMN-03, DMN-17)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aos_cli import client
from aos_cli.client import connect
from aos_runtime import AOS_VERSION
from aos_runtime.errors import AosError, Denied, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from tests.cli.conftest import RunAos
from tests.support.fake_daemon import TOKEN, FakeDaemon


def status_answer(topic: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"status": "Status", "data": {"pid": 7, "method": payload["method"]}}


def silent(topic: str, payload: Mapping[str, Any]) -> None:
    return None


@pytest.fixture
def short_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Home:
    """The home of the test; deep folders get a socket in /tmp, which the fake daemon makes."""
    home = Home(tmp_path / "aos-home")
    home.run.mkdir(parents=True)
    return home


def test_a_request_and_its_reply(short_home: Home) -> None:
    with (
        FakeDaemon(short_home, status_answer) as daemon,
        connect(short_home, DEFAULT_PRINCIPAL) as connection,
    ):
        assert connection.kernel_request("GetStatus") == {"pid": 7, "method": "GetStatus"}
    assert daemon.handshakes == [
        {
            "token": TOKEN,
            "protocol_version": 1,
            "client_version": AOS_VERSION,
            "claimed_principal": None,
            "workspace": None,
            "signature": None,
        }
    ]
    assert [payload for _, payload in daemon.requests] == [{"type": "raw_json", "method": "GetStatus"}]


def test_the_workspace_travels_in_the_first_frame(short_home: Home, tmp_path: Path) -> None:
    with FakeDaemon(short_home, status_answer) as daemon:
        connect(short_home, DEFAULT_PRINCIPAL, workspace=tmp_path).close()
    assert daemon.handshakes[0]["workspace"] == str(tmp_path)


def test_lst_03_no_daemon(run_aos: RunAos, short_home: Home) -> None:
    ended = run_aos("status")
    assert (ended.status, ended.out, ended.err) == (
        0,
        "The daemon is not running.\n",
        "hint: start it with `aos start`\n",
    )


def test_lst_03_a_daemon_that_answers_an_error(run_aos: RunAos, short_home: Home) -> None:
    with FakeDaemon(short_home, lambda topic, payload: {"status": "Error", "data": "no \x1b[2Jroom"}):
        ended = run_aos("status")
    assert (ended.status, ended.out, ended.err) == (
        1,
        "",
        "error: no \\x1b[2Jroom\nhint: look at `aos logs` for what the daemon recorded\n",
    )


def test_lst_03_a_daemon_that_hangs(
    run_aos: RunAos, short_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aos_cli.commands.status.STATUS_TIMEOUT_S", 0.05)
    with FakeDaemon(short_home, silent):
        ended = run_aos("status")
    assert (ended.status, ended.out, ended.err) == (
        1,
        "",
        "error: the daemon did not answer within 0.05 s\n"
        "hint: it may be busy: try again, look at `aos logs`, or run `aos restart`\n",
    )


def test_lst_03_a_socket_without_permission(
    run_aos: RunAos, short_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(client.socket, "socket", lambda *_arguments: _Refusing(refuse))
    ended = run_aos("status")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == (
        f"error: no permission to use the daemon's socket at {short_home.socket}\n"
        "hint: run aos as the user that started the daemon, or set AOS_HOME to a home of your own\n"
    )


class _Refusing:
    def __init__(self, connect: Any) -> None:
        self.connect = connect

    def settimeout(self, _timeout_s: float) -> None: ...

    def close(self) -> None: ...


def test_a_denial_keeps_the_daemon_s_words(short_home: Home) -> None:
    text = "permission denied for principal anonymous: missing capability system:status"
    with (
        FakeDaemon(short_home, lambda topic, payload: {"status": "Error", "data": text}),
        connect(short_home, DEFAULT_PRINCIPAL) as connection,
        pytest.raises(AosError) as refused,
    ):
        connection.kernel_request("GetStatus")
    assert (refused.value.code, refused.value.message) == ("permission-denied", text)


def test_working_extends_the_wait_and_other_frames_are_skipped(short_home: Home) -> None:
    answers = iter([{"status": "Working"}])
    with FakeDaemon(short_home, lambda topic, payload: next(answers, None)):
        connection = connect(short_home, DEFAULT_PRINCIPAL)
        with connection, pytest.raises(AosError) as refused:
            connection.kernel_request("GetStatus", inactivity_s=0.05)
    assert refused.value.code == "daemon-timeout"


def test_dmn_17_a_daemon_of_another_protocol_names_both_versions(short_home: Home) -> None:
    hello = {"protocol_version": 9, "server_version": "2099.1.1"}
    with FakeDaemon(short_home, silent, hello=hello), pytest.raises(AosError) as refused:
        connect(short_home, DEFAULT_PRINCIPAL)
    assert refused.value.code == "protocol-version"
    assert AOS_VERSION in refused.value.message and "2099.1.1" in refused.value.message
    assert refused.value.hint == "run `aos restart`"


def test_a_socket_in_a_folder_that_others_may_write_to_gets_no_token(tmp_path: Path) -> None:
    """In /tmp anybody can make the folder first, and would be handed the token and the calls."""
    deep = Home(tmp_path / ("d" * 120))
    folder = deep.socket.parent
    assert folder != deep.run
    folder.mkdir(mode=0o700)
    try:
        folder.chmod(0o777)
        with pytest.raises(Denied) as caught:
            connect(deep, DEFAULT_PRINCIPAL)
        assert caught.value.code == "socket-foreign"
        folder.chmod(0o700)
        with pytest.raises(Unavailable, match="not running"):
            connect(deep, DEFAULT_PRINCIPAL)
    finally:
        folder.rmdir()


def test_dmn_03_a_connection_that_breaks_is_no_stopped_daemon(short_home: Home) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    short_home.socket.parent.mkdir(parents=True, exist_ok=True)
    listener.bind(str(short_home.socket))
    listener.listen()
    try:
        with pytest.raises(AosError) as refused:
            connect(short_home, DEFAULT_PRINCIPAL)
        assert refused.value.code == "daemon-starting"
        assert short_home.socket.exists()
    finally:
        listener.close()
        short_home.socket.unlink()
    with pytest.raises(AosError) as gone:
        connect(short_home, DEFAULT_PRINCIPAL)
    assert gone.value.code == "daemon-not-running"


def test_another_principal_without_a_key_is_refused_here_and_not_made_anonymous(short_home: Home) -> None:
    with FakeDaemon(short_home, silent) as daemon, pytest.raises(AosError) as refused:
        connect(short_home, PrincipalName("bob"))
    assert refused.value.code == "principal-key-missing"
    assert daemon.handshakes == []
