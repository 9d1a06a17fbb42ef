"""Programs of this machine that capsules bring or start: their walls, their streams, their end.

`sandbox` says what a program sees, with the options that `walls` writes.  Of a guest's programs, `Children`
is the one thread that starts, reads, feeds and ends them all; a `Child` is one that runs; `Registry` keeps
those that outlive the instance that started them; a `ProcessDoor` is one guest's way to all of it: gate,
check, record, walls, start.  `mcp_servers` has the MCP servers, which live on an event loop of their own.
Policy decides what may be asked; nothing here knows a handle, a store of wasm or the bus.
"""

from aos_runtime.programs.child import Child, Exit, Output, Owner
from aos_runtime.programs.children import Children
from aos_runtime.programs.door import ProcessDoor, Tier
from aos_runtime.programs.registry import Kept, Registry

__all__ = ["Child", "Children", "Exit", "Kept", "Output", "Owner", "ProcessDoor", "Registry", "Tier"]
