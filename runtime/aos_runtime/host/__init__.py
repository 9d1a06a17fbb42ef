"""Runs capsules: the only room that knows wasmtime.

`HostEngine` holds the engine and its clock, `CodeCache` turns a component into `Code` (mapped from disk
where it can be), `Instance` is one store with one guest for one (capsule, principal), and `factors` are the
functions that a guest may call.  Nothing here knows of buses, sockets or files other than the code cache; a
`GuestContext` brings the rest.
"""

from aos_runtime.host.boundary import Case, Err
from aos_runtime.host.cache import CodeCache
from aos_runtime.host.code import Code, ComponentCode, EdgeCode
from aos_runtime.host.context import GuestContext, KvSpace
from aos_runtime.host.engine import EngineSettings, HostEngine
from aos_runtime.host.instance import Instance
from aos_runtime.host.lane import HookResult
from aos_runtime.host.traps import GuestTrap, TrapReason

__all__ = [
    "Case",
    "Code",
    "CodeCache",
    "ComponentCode",
    "EdgeCode",
    "EngineSettings",
    "Err",
    "GuestContext",
    "GuestTrap",
    "HookResult",
    "HostEngine",
    "Instance",
    "KvSpace",
    "TrapReason",
]
