"""Principals of a running daemon, made as an operator makes them."""

from __future__ import annotations

from collections.abc import Iterable

from aos_runtime.home import Home
from tests.support.sockets import Client


def create_agents(home: Home, names: Iterable[str]) -> None:
    with Client(home) as admin:
        admin.authenticate()
        for name in names:
            request = {"method": "AgentCreate", "params": {"name": name}, "request_id": name}
            answer = admin.ask("admin.agent.create", request)[-1]["payload"]
            assert answer["status"] == "Success", answer
