"""Principals of a running daemon, made as an operator makes them."""

from __future__ import annotations

from collections.abc import Iterable

from aos_runtime.home import Home
from tests.support.sockets import Client


def create_agents(home: Home, names: Iterable[str], *, capsules: tuple[str, ...] = ()) -> None:
    """New principals that may use `capsules` beside the bundled ones."""
    with Client(home) as admin:
        admin.authenticate()
        for name in names:
            _ask(admin, "create", {"name": name})
            if capsules:
                _ask(admin, "modify", {"principal": name, "add_capsules": list(capsules)})


def _ask(admin: Client, verb: str, params: dict[str, object]) -> None:
    request = {"method": f"Agent{verb.capitalize()}", "params": params, "request_id": verb}
    answer = admin.ask(f"admin.agent.{verb}", request)[-1]["payload"]
    assert answer["status"] == "Success", answer
