"""The programs that guests start: one thread that starts, reads, feeds and ends them all.

`Children` is that thread, one per daemon; a `Child` is one running program; `Registry` keeps those that
outlive the instance that started them; a `ProcessDoor` is one guest's way to all of it: gate, check, record,
walls, start.  Policy decides what may be asked, `host.sandbox` what a program sees; nothing here knows a
handle, a store of wasm or the bus.
"""

from aos_runtime.host.processes.child import Child, Exit, Output, Owner
from aos_runtime.host.processes.children import Children
from aos_runtime.host.processes.door import ProcessDoor, Tier
from aos_runtime.host.processes.registry import Kept, Registry

__all__ = ["Child", "Children", "Exit", "Kept", "Output", "Owner", "ProcessDoor", "Registry", "Tier"]
