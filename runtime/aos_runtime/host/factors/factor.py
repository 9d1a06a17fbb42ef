"""The shape of a factor: a function and the interface type that was published for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aos_runtime.host import wit

Factor = Callable[..., Any]
"""`(context, *arguments) -> result`."""


class Published(NamedTuple):
    """A factor and its published signature, which a capsule's own must equal."""

    run: Factor
    signature: wit.Signature


def published(run: Factor, result: wit.Type | None, /, **params: wit.Type) -> Published:
    """`params` in order, by WIT name with `_` for `-`."""
    named = tuple((name.replace("_", "-"), kind) for name, kind in params.items())
    return Published(run, wit.Signature(named, result))
