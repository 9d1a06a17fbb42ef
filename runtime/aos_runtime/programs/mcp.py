"""MCP servers of capsules: their processes, and their tools called through the official SDK.

One thread with an event loop serves every server of the process; this module and the SDK are imported when
the first one is started (`mcp_servers`).  A server is hostile: what it prints is bounded, what is no message
is dropped, every request has a deadline, and it dies with its whole process group.  Nothing here knows of
topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from aos_runtime.errors import AosError, PeerFault, Unavailable
from aos_runtime.programs.mcp_tools import Log, McpAnswer, McpTool
from aos_runtime.programs.pipes import STOP_GENTLY_S, Murmur, PipedProgram
from aos_runtime.programs.sandbox import Program
from aos_runtime.store.children import ChildRecords

if TYPE_CHECKING:
    from mcp import ClientSession

CANCEL_GRACE_S = 2.0
"""How long a server may say nothing after a call of it was given up, and then how long after SIGINT."""

MAX_TOOLS = 256
RELIST_S = 1.0
"""Announced changes of its tools are gathered this long: a server cannot keep the daemon listing."""

MAX_TEXT_CHARS = 1 << 20
_SHOWN_CHARS = 200


class McpServer:
    """One running server.  Threads may share it; `close` ends it."""

    def __init__(
        self,
        name: str,
        program: Program,
        log: Log,
        loop: asyncio.AbstractEventLoop,
        start_timeout_s: float,
        records: ChildRecords,
    ) -> None:
        self.name = name
        self._records = records
        self._start_timeout_s = start_timeout_s
        self.tools: tuple[McpTool, ...] = ()
        self.on_tools: Callable[[], None] = lambda: None
        """Called, on the thread of all servers, when `tools` are others than before.  Must not block."""
        self._relisting: asyncio.Task[None] | None = None
        self._program = program
        self._log = log
        self._loop = loop
        self._murmur = Murmur(log, f"MCP server `{name}`", loop)
        self._session: ClientSession | None = None
        self._checking: asyncio.Task[None] | None = None
        self._process: PipedProgram | None = None
        self._closing = asyncio.Event()
        self._ready: Future[None] = Future()
        self._ended = threading.Event()
        self._life: Future[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._session is not None and not self._ended.is_set()

    def start(self) -> None:
        """Start it, shake hands, list its tools.

        Unavailable `mcp-server-failed` where that fails or takes too long; then nothing is left of it.
        """
        self._life = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)
        try:
            self._ready.result(self._start_timeout_s)
        except FutureTimeoutError:
            self.close()
            raise self._failed(f"it did not answer within {self._start_timeout_s:g} s") from None
        except AosError:
            self.close()
            raise

    def call(self, tool: str, arguments: dict[str, Any], timeout_s: float) -> Future[McpAnswer]:
        """Call a tool; the future's cancel tells the server.  Its errors: PeerFault, Unavailable."""
        future = asyncio.run_coroutine_threadsafe(self._call(tool, arguments, timeout_s), self._loop)
        future.add_done_callback(self._note_cancel)
        return future

    def close(self) -> None:
        """End the process and all of its group; returns when that is done."""
        is_ready, life = self._ready.done(), self._life
        self._loop.call_soon_threadsafe(self._closing.set)
        if not is_ready and life is not None:
            life.cancel()  # it is still in the handshake, and may stay there
        self._ended.wait(STOP_GENTLY_S * 3)

    async def _serve(self) -> None:
        """The life of the server, in one task."""
        try:
            async with self._streams() as (read, write):
                await self._talk(read, write)
        except Exception as error:  # noqa: BLE001 - the top of a task: whoever waits is told
            self._give_up(self._failed(f"{type(error).__name__}: {str(error)[:_SHOWN_CHARS]}"))
        finally:
            self._session = None
            self._give_up(self._failed("it ended before it was ready"))
            self._ended.set()

    async def _talk(self, read: Any, write: Any) -> None:
        from mcp import ClientSession

        async with ClientSession(read, write, message_handler=self._hear) as session:
            await session.initialize()
            self.tools = await _list_tools(session)
            self._session = session
            self._ready.set_result(None)
            assert self._process is not None
            waits = {asyncio.ensure_future(self._closing.wait()), asyncio.ensure_future(self._process.wait())}
            _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in (*pending, *((self._relisting,) if self._relisting else ())):
                wait.cancel()
            self._session = None  # before anybody hears of it: a call now must not go to a dead one
            if not self._closing.is_set():
                self._log("error", f"MCP server `{self.name}` ended with status {self._process.status}")

    async def _hear(self, message: object) -> None:
        """A notification; that its tools have changed is the one that counts."""
        from mcp_types import ToolListChangedNotification

        is_idle = self._relisting is None or self._relisting.done()
        if isinstance(message, ToolListChangedNotification) and self._session is not None and is_idle:
            self._relisting = asyncio.ensure_future(self._relist(self._session))

    async def _relist(self, session: ClientSession) -> None:
        """List the tools anew, a moment after a change was announced: others may follow."""
        await asyncio.sleep(RELIST_S)
        try:
            tools = await asyncio.wait_for(_list_tools(session), self._start_timeout_s)
        except Exception as error:  # noqa: BLE001 - the top of a task: the tools of before go on
            sentence = f"{type(error).__name__}: {str(error)[:_SHOWN_CHARS]}"
            self._log("warn", f"MCP server `{self.name}` did not list its changed tools: {sentence}")
            return
        if tools != self.tools:
            self.tools = tools
            self.on_tools()

    def _give_up(self, error: AosError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)

    async def _call(self, tool: str, arguments: dict[str, Any], timeout_s: float) -> McpAnswer:
        from mcp import MCPError

        if self._checking is not None:
            await asyncio.wait({self._checking})
        session = self._session
        if session is None:
            raise self._failed("it has ended; the next call starts it again")
        try:
            result = await asyncio.wait_for(session.call_tool(tool, arguments), timeout_s)
        except TimeoutError:
            self._check()
            raise PeerFault(
                "mcp-server-silent",
                f"MCP server `{self.name}` did not answer within {timeout_s:g} s",
                hint="see `aos logs`",
            ) from None
        except MCPError as error:
            return McpAnswer(content=str(error)[:MAX_TEXT_CHARS], is_error=True)
        return McpAnswer(content=_text(result)[:MAX_TEXT_CHARS], is_error=bool(result.is_error))

    def _note_cancel(self, call: Future[McpAnswer]) -> None:
        """A call was given up: its thread goes on at once, the server is looked at."""
        if call.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._check)

    def _check(self) -> None:
        if self._session is not None and self._checking is None:
            self._checking = asyncio.ensure_future(self._check_answers(self._session))

    async def _check_answers(self, session: ClientSession) -> None:
        """After a call was given up: a server that answers nothing any more is stuck in it, and is ended."""
        ping = asyncio.ensure_future(session.send_ping())
        try:
            await asyncio.wait({ping}, timeout=CANCEL_GRACE_S)
            if ping.done():
                with contextlib.suppress(asyncio.CancelledError):
                    ping.exception()  # a refusal is an answer too
            elif self._session is not None and self._process is not None:
                self._session = None
                self._log("warn", f"MCP server `{self.name}` does not stop what was cancelled: it is ended")
                await self._process.end(signal.SIGINT, CANCEL_GRACE_S)
        finally:
            ping.cancel()
            self._checking = None

    @contextlib.asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """The process between two in-memory streams of the SDK; at the end its group is gone."""
        import anyio

        self._process = process = await PipedProgram.start(self._program, self._records)
        to_session, read = anyio.create_memory_object_stream[Any](16)
        write, from_session = anyio.create_memory_object_stream[Any](16)
        tasks = [
            asyncio.ensure_future(work)
            for work in (
                self._read_messages(process, to_session),
                self._write_messages(process, from_session),
                self._read_complaints(process),
            )
        ]
        try:
            yield read, write
        finally:
            await process.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._murmur.tell()
            for stream in (to_session, read, write, from_session):
                stream.close()

    async def _read_messages(self, process: PipedProgram, target: Any) -> None:
        """What is a message goes to the session; what is not is noted and dropped."""
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        async with target:
            async for line in process.output():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    shown = line[:_SHOWN_CHARS].decode("utf-8", "replace")
                    sentence = f"MCP server `{self.name}` printed what is no message: {shown}"
                    await self._murmur.say("warn", sentence)
                    continue
                await target.send(SessionMessage(message))

    async def _write_messages(self, process: PipedProgram, source: Any) -> None:
        async with source:
            async for item in source:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(text.encode() + b"\n")

    async def _read_complaints(self, process: PipedProgram) -> None:
        async for line in process.complaints():
            await self._murmur.say("info", f"{self.name}: {line.decode('utf-8', 'replace').rstrip()}")

    def _failed(self, reason: str) -> Unavailable:
        return Unavailable(
            "mcp-server-failed",
            f"MCP server `{self.name}` failed: {reason}",
            hint="see `aos logs` for what it wrote",
        )


class McpLoop:
    """The thread of all servers.  Each has `start_timeout_s` to shake hands in.

    Every server is started on it, and it ends after the last of them: bubblewrap ends with the thread that
    started it, not with the process.
    """

    def __init__(self, start_timeout_s: float, records: ChildRecords) -> None:
        self._start_timeout_s = start_timeout_s
        self._records = records
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aos-mcp", daemon=True)
        self._thread.start()

    def start_server(self, name: str, program: Program, log: Log) -> McpServer:
        """Start one; raises as `McpServer.start`."""
        making = asyncio.run_coroutine_threadsafe(self._make(name, program, log), self._loop)
        server = making.result(5.0)
        server.start()
        return server

    def close(self) -> None:
        """End the thread; every server must be closed before."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    async def _make(self, name: str, program: Program, log: Log) -> McpServer:
        return McpServer(name, program, log, self._loop, self._start_timeout_s, self._records)


def check_sdk() -> None:
    """Unavailable `mcp-sdk-missing` where the optional extra is not installed."""
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise Unavailable(
            "mcp-sdk-missing",
            "it has an MCP server, and the MCP SDK is not installed",
            hint="install the extra: pip install 'aos-cli[mcp]'",
        ) from error


async def _list_tools(session: ClientSession) -> tuple[McpTool, ...]:
    """Every page, up to the bound."""
    from mcp_types import PaginatedRequestParams

    found: list[McpTool] = []
    cursor: str | None = None
    while len(found) < MAX_TOOLS:
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        found += [
            McpTool(name=tool.name, description=tool.description or "", input_schema=dict(tool.input_schema))
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor or not page.tools:
            break
    return tuple(found[:MAX_TOOLS])


def _text(result: Any) -> str:
    """The texts of a result; what is no text stands there as its JSON."""
    blocks = [
        block.text if block.type == "text" else block.model_dump_json(by_alias=True, exclude_none=True)
        for block in result.content
    ]
    if not blocks and result.structured_content is not None:
        import msgspec

        return msgspec.json.encode(result.structured_content).decode()
    return "\n".join(blocks)
