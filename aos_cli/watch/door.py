"""The caller's side of the events door: one question, a stream of events, a message and its first answer.

It starts no daemon: there is nothing to see where none runs.  Source: docs/formats/wire.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aos_cli.client import Connection, connect, new_correlation, reply_error
from aos_cli.control.workspace import find_workspace
from aos_cli.invocation import get_invocation
from aos_runtime.errors import Unavailable
from aos_runtime.wire.client import Exchange, Reply, decode_event, events_exchange
from aos_runtime.wire.methods import REQUEST_PREFIX, reply_topic

_WORKING = "Working"
_RUN_PREFIX, _RESULT_PREFIX = "cli.v1.command.run.", "cli.v1.command.result."
_SESSION_PREFIX, _SESSION_REPLY_PREFIX = "session.v1.request.", "session.v1.response."


def open_events() -> Connection:
    """A connection of the caller's principal and workspace to the daemon that runs."""
    invocation = get_invocation()
    workspace = find_workspace(Path.cwd(), invocation.home, invocation.environ)
    return connect(invocation.home, invocation.principal, workspace=workspace)


def ask(daemon: Connection, verb: str, params: dict[str, object]) -> dict[str, Any]:
    """One question to the events door.  Its `Error` reply is raised (`reply_error`)."""
    reply = daemon.request(events_exchange(verb, params, new_correlation()))
    if reply.is_error:
        raise reply_error(reply)
    return reply.data if isinstance(reply.data, dict) else {}


def follow(daemon: Connection, params: dict[str, object]) -> Iterator[Reply]:
    """The replies of a tail: `Tailing`, `Event`s, `Dropped`, and the `Success` that ends it."""
    exchange = events_exchange("tail", params, new_correlation())
    daemon.send(exchange)
    for reply in daemon.replies(exchange):
        if reply.is_error:
            raise reply_error(reply)
        yield reply
        if reply.status == "Success":
            return


def default_reply_topic(topic: str, payload: Mapping[str, object]) -> str | None:
    """Where the answer to a message on `topic` comes by convention; None where there is no convention."""
    request_id = payload.get("req_id")
    if topic.startswith(REQUEST_PREFIX):
        return reply_topic(topic)
    if topic.startswith(_RUN_PREFIX) and isinstance(request_id, str):
        return _RESULT_PREFIX + request_id
    if topic.startswith(_SESSION_PREFIX):
        operation, correlation = topic[len(_SESSION_PREFIX) :], payload.get("correlation_id")
        is_in_body = "." not in operation and isinstance(correlation, str)
        return _SESSION_REPLY_PREFIX + (f"{operation}.{correlation}" if is_in_body else operation)
    return None


def request(
    daemon: Connection, topic: str, payload: dict[str, object], *, answer: str, timeout_s: float
) -> object:
    """Publish and wait for the first message on `answer` (a topic or pattern).

    What this client is sent anyway is read as it comes; anything else through a tail, which needs its right.
    Unavailable `no-answer` where none comes in time.
    """
    watch: Exchange | None = None
    if not _comes_by_itself(topic, answer):
        watch = events_exchange("tail", {"pattern": answer, "payloads": True, "limit": 1}, new_correlation())
        daemon.send(watch)
        _wait_tailing(daemon, watch, timeout_s)
    sent = events_exchange("publish", {"topic": topic, "payload": payload}, new_correlation())
    daemon.send(sent)
    found = daemon.wait_for(lambda body: _answered(body, sent, watch, answer), total_s=timeout_s)
    if found is None:
        raise Unavailable(
            "no-answer",
            f"no message on {answer[:256]} within {timeout_s:g} s",
            hint="see who handles the topic with `aos events tail`, or give it --timeout",
        )
    return found[0]


def _comes_by_itself(topic: str, answer: str) -> bool:
    """Whether the daemon sends `answer` to whoever published on `topic`: chat goes to its own turn alone."""
    from aos_runtime.wire.egress import CHAT_TOPICS, is_for_clients
    from aos_runtime.wire.ingress import CHAT_TOPIC

    return "*" not in answer and is_for_clients(answer) and (answer not in CHAT_TOPICS or topic == CHAT_TOPIC)


def _wait_tailing(daemon: Connection, watch: Exchange, timeout_s: float) -> None:
    reply = daemon.wait_for(watch.receive, total_s=timeout_s)
    if reply is not None and reply.is_error:
        raise reply_error(reply)


def _answered(body: bytes, sent: Exchange, watch: Exchange | None, answer: str) -> tuple[object] | None:
    """The payload that was waited for, in a tuple, since it may be null."""
    accepted = sent.receive(body)
    if accepted is not None:
        if accepted.is_error:
            raise reply_error(accepted)
        return None
    if watch is not None:
        reply = watch.receive(body)
        if reply is None or reply.status != "Event" or not isinstance(reply.data, dict):
            return None
        return (reply.data.get("payload"),)
    event = decode_event(body)
    if event is None or event.topic != answer:
        return None
    is_working = isinstance(event.payload, dict) and event.payload.get("status") == _WORKING
    return None if is_working else (event.payload,)
