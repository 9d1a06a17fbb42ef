"""The contract of a capsule and the runtime that hosts it.

Rooms, lowest first: `errors`, `names`, `home`, `config`; `capsule` (the format), `wire`, `bus`, `policy`
(decisions, no I/O), `store` (the only writers of the home), `host` (the only room with wasmtime), `kernel`
(routing and scheduling) and `daemon` (the process).  Imports only ever point down.
"""

HOST_VERSION = "2026.10.1"
"""The contract version: what `astrid-version` is checked against and what the wire reports."""

AOS_VERSION = "0.1.0"
"""Our own version, additive on the wire as `aos_version`."""
