"""A capsule of MCP servers as a guest like any other: the kernel's rows, and an instance that answers them.

Its tools are those that its servers list; for each the kernel makes the row that a tool capsule would have
written, so routing, shadowing, describing, queues and cancel are what they are for everybody.  A server that
died is started again by the next call, unless it keeps dying.  Source: build-install.md 4.9, case MAN-11.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace

import msgspec

from aos_runtime.capsule.manifest import Manifest
from aos_runtime.capsule.manifest_values import McpServer, PublishRow, SubscribeRow
from aos_runtime.capsule.topics import is_tool_name, tool_topic
from aos_runtime.errors import AosError, Denied, Unavailable
from aos_runtime.host import GuestContext, GuestTrap, HookResult, TrapReason
from aos_runtime.kernel.audited import Trail, note_calls
from aos_runtime.kernel.probe import DESCRIBE_ACTION, DESCRIBE_TOPIC, Described, Tool, read_description
from aos_runtime.kernel.restarts import MAX_RESTARTS, RECOVERED_AFTER_S
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.policy.bounds import PROGRAMS, Bounds, unbound
from aos_runtime.programs.mcp_servers import McpServers
from aos_runtime.programs.mcp_tools import McpAnswer, Server
from aos_runtime.programs.sandbox import Sandbox
from aos_runtime.store.installed import Installed
from aos_runtime.wire.payloads import decode_tool_request, encode_tool_result

EXECUTE_PREFIX = "tool_execute_"
DESCRIBED_TOPIC = "tool.v1.response.describe.self"
PUBLISHES = ("tool.v1.execute.*.result", DESCRIBED_TOPIC)
CALL_TIMEOUT_S = 300.0
SLACK_S = 5.0
START_CALL, NOT_ALLOWED = "process.mcp-server", "capability-denied"
_DONE = HookResult("continue", None)


class Programs:
    """What starts the programs of capsules in this daemon.

    `tools_changed(principal, capsule)` is told, on a thread of its own, that servers list other tools now;
    `bounds_of` gives the most that a principal may start.
    """

    def __init__(
        self,
        open_sandbox: Callable[[], Sandbox],
        servers: McpServers,
        tools_changed: Callable[[PrincipalName, CapsuleName], None] = lambda principal, name: None,
        bounds_of: Callable[[PrincipalName], Bounds] = unbound,
        trail: Trail | None = None,
    ) -> None:
        self._bounds_of = bounds_of
        self._trail = trail
        self.open_sandbox = open_sandbox
        self.servers = servers
        self._tools_changed = tools_changed

    def check(self, installed: Installed, row: McpServer) -> None:
        """Denied `program-not-allowed`, which is on record, where the principal may not have this started."""
        bounds, command = self._bounds_of(installed.principal), row.command or ""
        if bounds.starts(command, row.args):
            return
        note_calls(self._trail, installed.principal, installed.name)(START_CALL, command, NOT_ALLOWED)
        raise Denied(
            "program-not-allowed",
            f"its MCP server `{row.id}` is not started: {bounds.rule(PROGRAMS)}",
            hint=f"allow it in {bounds.allow(PROGRAMS, command)}",
            command=command,
        )

    def tell_tools(self, installed: Installed) -> None:
        """The tools of a capsule are others than when it was loaded; safe where nothing may block."""
        who = (installed.principal, installed.name)
        threading.Thread(target=self._tools_changed, args=who, name="aos-mcp-tools", daemon=True).start()


def open_mcp(
    installed: Installed, programs: Programs, context: GuestContext, values: Mapping[str, str]
) -> McpGuest:
    """Start every stdio server of a capsule; where one fails, none is left."""
    sandbox = programs.open_sandbox()
    servers: dict[str, Server] = {}
    try:
        for row in installed.manifest.mcp_servers:
            if row.type == "stdio" and row.command is not None:
                programs.check(installed, row)
                program = sandbox.program(row.command, row.args, installed.generation, values)
                for warning in program.warnings:
                    context.log("warn", warning)
                servers[row.id] = programs.servers.start_server(row.id, program, context.log)
    except AosError:
        for server in servers.values():
            server.close()
        raise
    guest = McpGuest(context, servers)

    def renew() -> None:
        guest.bind_tools()
        programs.tell_tools(installed)

    for server in servers.values():
        server.on_tools = renew
    return guest


class Starts:
    """How often the servers of one capsule were started lately: the limits are those of a run loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._moments: list[float] = []

    def check(self) -> None:
        """Count a start.  Unavailable `mcp-server-failing` where there were too many: it keeps dying."""
        now = self._clock()
        self._moments = [moment for moment in self._moments if now - moment < RECOVERED_AFTER_S]
        if len(self._moments) > MAX_RESTARTS:
            raise Unavailable(
                "mcp-server-failing",
                f"its MCP servers ended {MAX_RESTARTS + 1} times in {RECOVERED_AFTER_S:g} s",
                hint="see `aos logs`; a call later tries again",
            )
        self._moments.append(now)


class McpGuest:
    """Implements `actor.GuestInstance` over the servers of one capsule."""

    def __init__(
        self, context: GuestContext, servers: Mapping[str, Server], *, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        self._context = context
        self._servers = servers
        self._timeout_s = timeout_s
        self.bind_tools()
        self._pending: Future[McpAnswer] | None = None
        self._closed = False

    @property
    def dead(self) -> bool:
        return self._closed or not all(server.is_running for server in self._servers.values())

    def hook(
        self, action: bytes, payload: bytes, *, timeout_s: float | None = None, fuel: int | None = None
    ) -> HookResult:
        """Describe, or call a tool and publish what it answered.  GuestTrap where the call was cancelled."""
        if action == DESCRIBE_ACTION:
            body = self._description()
            self._context.publish(DESCRIBED_TOPIC, body)
            return HookResult("continue", body)
        request = decode_tool_request(payload)
        name = action.decode().removeprefix(EXECUTE_PREFIX)
        if request is None or name not in self._owners:
            return HookResult("deny", f"unknown action: {action.decode()}".encode())
        arguments = request.arguments if isinstance(request.arguments, dict) else {}
        answer = self._call(name, arguments, self._timeout_s if timeout_s is None else timeout_s)
        self._context.publish(
            f"{tool_topic(name)}.result",
            encode_tool_result(request.call_id, answer.content, is_error=answer.is_error),
        )
        return _DONE

    def bind_tools(self) -> None:
        """Offer what the servers list now; a call that runs goes on."""
        self._owners, self.tools, self.warnings = _bind_tools(self._servers)

    def describe(self) -> Described:
        """What a probe would learn now, from any thread."""
        return read_description(self._description()) or Described(tools=())

    def wake(self) -> None:
        """The running call may be cancelled: its wait ends."""
        pending = self._pending
        if pending is not None and self._context.is_cancelled:
            pending.cancel()

    def fuel_used(self) -> int:
        """A server burns no fuel of ours."""
        return 0

    def memory_bytes(self) -> int:
        """Of wasm memory there is none."""
        return 0

    def close(self) -> None:
        """End every server."""
        self._closed = True
        for server in self._servers.values():
            server.close()

    def _description(self) -> bytes:
        return msgspec.json.encode({"tools": [tool.to_json() for tool in self.tools]})

    def _call(self, name: str, arguments: dict[str, object], timeout_s: float) -> McpAnswer:
        gate = self._context.gate
        if gate is not None and not gate.enter():
            return McpAnswer(content="too many calls wait; try again later", is_error=True)
        try:
            self._context.before_block()
            self._pending = pending = self._owners[name].call(name, arguments, timeout_s)
            self.wake()  # it may have been cancelled before there was anything to wake
            return pending.result(timeout_s + SLACK_S)
        except CancelledError:
            raise GuestTrap(TrapReason.CANCELLED, "its call was cancelled") from None
        except FutureTimeoutError:
            pending.cancel()
            return McpAnswer(content=f"the MCP server did not answer within {timeout_s:g} s", is_error=True)
        except AosError as error:
            return McpAnswer(content=error.message, is_error=True)
        finally:
            self._pending = None
            if gate is not None:
                gate.leave()


def with_rows(manifest: Manifest, tools: tuple[Tool, ...]) -> Manifest:
    """The manifest with the rows that a capsule with these tools would have written."""
    rows = [
        SubscribeRow(topic=tool_topic(tool.name), wit="opaque", handler=EXECUTE_PREFIX + tool.name)
        for tool in tools
    ]
    rows.append(SubscribeRow(topic=DESCRIBE_TOPIC, wit="opaque", handler=DESCRIBE_ACTION.decode()))
    made = {row.topic for row in rows}
    return replace(
        manifest,
        subscribe=(*(row for row in manifest.subscribe if row.topic not in made), *rows),
        publish=(*manifest.publish, *(PublishRow(topic=topic, wit="opaque") for topic in PUBLISHES)),
    )


def _bind_tools(servers: Mapping[str, Server]) -> tuple[dict[str, Server], tuple[Tool, ...], tuple[str, ...]]:
    """Which server has which tool.  A name that no call can reach, and a second one, are warnings."""
    owners: dict[str, Server] = {}
    tools: list[Tool] = []
    warnings: list[str] = []
    for server_id, server in servers.items():
        for tool in server.tools:
            if not is_tool_name(tool.name):
                warnings.append(f"MCP server `{server_id}` has a tool named {tool.name[:200]!r}, left out")
            elif tool.name in owners:
                warnings.append(f"MCP server `{server_id}` has a second tool '{tool.name}'; the first counts")
            else:
                owners[tool.name] = server
                tools.append(
                    Tool(
                        name=tool.name,
                        description=tool.description,
                        input_schema=tool.input_schema,
                        mutable=False,
                    )
                )
    return owners, tuple(tools), tuple(warnings)
