"""Admin requests to the running daemon: one connection, one request at a time, the daemon's own words back.

Nothing here starts a daemon or reads a profile: who may do what is decided where it is enforced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aos_cli.client import Connection, connect
from aos_cli.console import get_console, safe
from aos_cli.invocation import get_invocation
from aos_cli.suggest import did_you_mean, nearest_names
from aos_cli.tools.door import malformed_answer
from aos_runtime.errors import NotFound

Row = Mapping[str, Any]


class AdminDesk:
    """An open connection that asks admin requests."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ask(self, method: str, params: dict[str, object] | None = None) -> Any:
        """The data of an admin request.  Its `Error` reply is raised."""
        return self._connection.admin_request(method, params)

    def ask_row(self, method: str, params: dict[str, object] | None = None) -> Row:
        """The data of a request that answers with an object."""
        data = self.ask(method, params)
        if not isinstance(data, dict):
            raise malformed_answer()
        return data

    def ask_rows(self, method: str) -> list[Row]:
        """The data of a request that answers with a list of objects."""
        data = self.ask(method)
        if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
            raise malformed_answer()
        return data

    def agent(self, name: str) -> Row:
        """One principal.  NotFound `principal-unknown` with the nearest names."""
        rows = self.ask_rows("AgentList")
        for row in rows:
            if row.get("principal") == name:
                return row
        raise NotFound(
            "principal-unknown",
            f"principal {safe(name[:64])!r} does not exist, or you may not see it",
            hint=_near(name, rows, "principal") or "`aos agent list` shows them",
            name=name[:64],
        )

    def group(self, name: str) -> Row:
        """One group.  NotFound `group-unknown` with the nearest names."""
        rows = self.ask_rows("GroupList")
        for row in rows:
            if row.get("name") == name:
                return row
        raise NotFound(
            "group-unknown",
            f"group {safe(name[:64])!r} does not exist",
            hint=_near(name, rows, "name") or "`aos group list` shows them",
            name=name[:64],
        )


@contextmanager
def admin_desk() -> Iterator[AdminDesk]:
    """A desk for the caller's principal.  Unavailable `daemon-not-running` where no daemon runs."""
    invocation = get_invocation()
    with connect(invocation.home, invocation.principal) as connection:
        yield AdminDesk(connection)


def carry_out(method: str, params: dict[str, object], done: str) -> None:
    """Ask for a change; then what it left, as JSON, or `done`."""
    console = get_console()
    with admin_desk() as desk:
        after = desk.ask_row(method, params)
    if console.is_json:
        console.json(after)
    else:
        console.success(done)


def own_name() -> str:
    """The caller's principal, where a command names none."""
    return get_invocation().principal


def _near(name: str, rows: list[Row], key: str) -> str:
    """A question after the names that may have been meant; empty for none."""
    return did_you_mean(nearest_names(name, [str(row.get(key)) for row in rows]))
