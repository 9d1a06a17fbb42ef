"""How MCP servers are started: their room, its event loop and the SDK are imported with the first one.

Most daemons start none, and should pay neither boot time nor memory for them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from aos_runtime.programs.mcp_tools import Log, Server
from aos_runtime.programs.sandbox import Program
from aos_runtime.store.children import ChildRecords

if TYPE_CHECKING:
    from aos_runtime.programs.mcp import McpLoop


class McpServers:
    """What starts the servers of a daemon.  Each has `start_timeout_s` to shake hands in."""

    def __init__(self, start_timeout_s: float, records: ChildRecords) -> None:
        self._start_timeout_s = start_timeout_s
        self._records = records
        self._lock = threading.Lock()
        self._loop: McpLoop | None = None

    def start_server(self, name: str, program: Program, log: Log) -> Server:
        """Start one.  Unavailable `mcp-sdk-missing` without the SDK, else as `McpServer.start`."""
        from aos_runtime.programs.mcp import McpLoop, check_sdk

        check_sdk()
        with self._lock:
            if self._loop is None:
                self._loop = McpLoop(self._start_timeout_s, self._records)
            loop = self._loop
        return loop.start_server(name, program, log)

    def close(self) -> None:
        """End the thread of all servers, where there is one; every server must be closed before."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()
