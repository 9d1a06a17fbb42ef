"""What a guest may call, one module per WIT interface: plain Python functions on plain values.

A factor takes the instance's context and the lifted arguments (`codecs` says what a value looks like).
What it returns is the ok arm, an `Err` the err arm; it raises only for bugs.  One that may wait calls
`context.before_block()` first.  Factors do not import each other, and none knows wasmtime, the bus or a
file.
"""

from __future__ import annotations

from collections.abc import Mapping

from aos_runtime.host.factors import (
    approval,
    elicit,
    fs,
    http,
    identity,
    io,
    ipc,
    kv,
    net,
    process,
    request_context,
    sys,
    uplink,
)
from aos_runtime.host.factors.factor import Factor, Published

__all__ = ["FACTORS", "Factor", "Published"]

FACTORS: Mapping[tuple[str, str], Published] = {
    (interface, name): published
    for interface, functions in (
        ("astrid:approval/host@1.0.0", approval.FUNCTIONS),
        ("astrid:elicit/host@1.0.0", elicit.FUNCTIONS),
        ("astrid:fs/host@1.0.0", fs.FUNCTIONS),
        ("astrid:http/host@1.0.0", http.FUNCTIONS_1_0),
        ("astrid:http/host@1.1.0", http.FUNCTIONS),
        ("astrid:identity/host@1.0.0", identity.FUNCTIONS),
        ("astrid:io/error@1.0.0", io.ERRORS),
        ("astrid:io/poll@1.0.0", io.POLLING),
        ("astrid:io/streams@1.0.0", io.STREAMS),
        ("astrid:ipc/host@1.0.0", ipc.FUNCTIONS),
        ("astrid:kv/host@1.0.0", kv.FUNCTIONS),
        ("astrid:net/host@1.0.0", net.FUNCTIONS),
        ("astrid:process/host@1.0.0", process.FUNCTIONS_1_0),
        ("astrid:process/host@1.1.0", process.FUNCTIONS),
        ("astrid:request-context/host@1.0.0", request_context.FUNCTIONS),
        ("astrid:sys/host@1.0.0", sys.FUNCTIONS),
        ("astrid:uplink/host@1.0.0", uplink.FUNCTIONS),
    )
    for name, published in functions.items()
}
"""By interface and function.  Every other `astrid:*` import answers `unknown`."""
