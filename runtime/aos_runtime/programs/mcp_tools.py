"""MCP servers as the kernel knows them: the tools that one has, and what a call answers.  No event loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

Log = Callable[[str, str], None]
"""A level and a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """One tool as its server lists it."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAnswer:
    """What a tool answered, as text for a model."""

    content: str
    is_error: bool


class Server(Protocol):
    """One running server; `programs.mcp.McpServer` says what each does."""

    @property
    def is_running(self) -> bool: ...

    @property
    def tools(self) -> tuple[McpTool, ...]: ...

    on_tools: Callable[[], None]

    def call(self, tool: str, arguments: dict[str, Any], timeout_s: float) -> Future[McpAnswer]: ...

    def close(self) -> None: ...
