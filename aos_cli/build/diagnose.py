"""Known failures of a build in our words, after the compiler's own were shown.

A table of what the tools print and what it means for a capsule (seed section 12, cases BLD-04 to BLD-13).
The first row that matches wins; where none does, the compiler has said it better than we could.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from aos_cli.build.rustflags import GETRANDOM_FLAG, TARGET
from aos_runtime.errors import BuildFailed

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_FETCH = "run `cargo fetch` where there is a network, or configure a vendored source (`cargo vendor`)"
_NEWER_CARGO = "use a newer cargo; the pin in rust-toolchain.toml works only where cargo is rustup's"
_C_TOOLS = "`sudo apt install build-essential` on Debian, `xcode-select --install` on macOS"


@dataclass(frozen=True, slots=True)
class Known:
    """One failure: how a tool prints it, and the error made from what the pattern's group caught.

    Compiled when something has failed: a build that works pays for none of them.
    """

    pattern: str
    make: Callable[[str], BuildFailed]


KNOWN = (
    Known(
        rf"can't find crate for `(?:core|std)`.{{0,400}}?`?{TARGET}`? target may not be installed",
        lambda _: BuildFailed(
            "wasm-library-missing",
            f"the compiler that cargo called has no library for {TARGET}",
            hint=f"run `rustup target add {TARGET}`; it applies only to rustup's own compilers",
        ),
    ),
    Known(
        r"targets? (?:are|is) not supported(?: by default)?[,;].{0,2000}?getrandom",
        lambda _: BuildFailed(
            "getrandom-backend",
            "a crate of the graph uses getrandom, which has no source of entropy for this target by itself",
            hint=f"getrandom 0.3 and newer ask the host where .cargo/config.toml has {GETRANDOM_FLAG};"
            " an older one cannot: `cargo tree -i getrandom` shows which crate to update",
        ),
    ),
    Known(
        r"undefined symbol: __getrandom_v0[0-9]_custom",
        lambda _: BuildFailed(
            "getrandom-backend",
            "the custom getrandom backend is chosen, and no crate of the graph provides it",
            hint="depend on astrid-sdk 0.7.1 or newer: it routes entropy to the host",
        ),
    ),
    Known(
        r"linker `([^`]+)` not found",
        lambda linker: BuildFailed(
            "linker-missing",
            f"the linker `{linker}` was not found: build scripts and macros are programs of this machine",
            hint=f"install a C tool chain: {_C_TOOLS}",
        ),
    ),
    Known(
        r"failed to (?:download|get) `([^`\s]+).{0,3000}?"
        r"(?:offline|resolve host|unreachable|connect|timed out|network failure)",
        lambda crate: BuildFailed(
            "crates-offline",
            f"cargo needs the crate `{crate}`, which is not on this machine, and cannot reach the registry",
            hint=_FETCH,
        ),
    ),
    Known(
        r"no matching package named `([^`]+)` found.{0,800}?offline",
        lambda crate: BuildFailed(
            "crates-offline",
            f"cargo needs the crate `{crate}`, which is not on this machine, and may not use the network",
            hint=_FETCH,
        ),
    ),
    Known(
        r"(?:could not|couldn't) resolve host|network is unreachable|spurious network error",
        lambda _: BuildFailed("crates-offline", "the crate registry cannot be reached", hint=_FETCH),
    ),
    Known(
        r"lock file .{0,600}?--locked",
        lambda _: BuildFailed(
            "lock-out-of-date",
            "Cargo.lock does not match Cargo.toml, and --locked allows no change",
            hint="build once without --locked and commit Cargo.lock",
        ),
    ),
    Known(
        r"lock file version `?([0-9]+)`? .{0,200}?(?:does not understand|not understood|requires `-Znext)",
        lambda version: BuildFailed(
            "cargo-too-old",
            f"this cargo is too old for the project's lock file (version {version})",
            hint=_NEWER_CARGO,
        ),
    ),
    Known(
        r"feature `(edition20[0-9]+)` is required",
        lambda feature: BuildFailed(
            "cargo-too-old",
            f"this cargo is too old for the project: it does not know {feature}",
            hint=_NEWER_CARGO,
        ),
    ),
    Known(
        r"requires rustc ([0-9][0-9.]*)",
        lambda version: BuildFailed(
            "rustc-too-old",
            f"a crate of the graph needs rustc {version} or newer",
            hint='pin a newer one in rust-toolchain.toml; `aos capsule new` writes channel = "1.95.0"',
        ),
    ),
    Known(
        r"toolchain '([^']+)' is not installed",
        lambda name: BuildFailed(
            "toolchain-not-installed",
            f"the toolchain {name} is not installed",
            hint=f"run `rustup toolchain install {name}`",
        ),
    ),
    Known(
        r"no space left on device",
        lambda _: BuildFailed(
            "disk-full",
            "the disk is full",
            hint="free some space; `cargo clean` in projects that you do not build now gives back the most",
        ),
    ),
)


def explain_failure(output: str, otherwise: str) -> BuildFailed:
    """The error for a tool that failed after printing `output`: a known failure, else `otherwise`."""
    text = _ANSI.sub("", output)
    for known in KNOWN:
        found = re.search(known.pattern, text, re.IGNORECASE | re.DOTALL)
        if found:
            return known.make(found.group(1) if found.groups() else "")
    return BuildFailed(
        "cargo-failed", otherwise, hint="correct what the compiler shows above, then build again"
    )
