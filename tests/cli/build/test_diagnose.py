"""Known failures, from what the tools really print."""

from __future__ import annotations

import pytest

from aos_cli.build.diagnose import explain_failure

MISSING_TARGET = """\
error[E0463]: can't find crate for `core`
  |
  = note: the `wasm32-unknown-unknown` target may not be installed
  = help: consider downloading the target with `rustup target add wasm32-unknown-unknown`

For more information about this error, try `rustc --explain E0463`.
error: could not compile `cfg-if` (lib) due to 1 previous error
"""
GETRANDOM_3 = """\
error: The wasm32-unknown-unknown targets are not supported by default; you may need to enable the \
"wasm_js" configuration flag. Note that enabling the `wasm_js` feature flag alone is insufficient. For more \
information see: https://docs.rs/getrandom/0.3.4/#webassembly-support
   --> getrandom-0.3.4/src/backends.rs:176:9
"""
GETRANDOM_2 = """\
error: the wasm*-unknown-unknown targets are not supported by default, you may need to enable the "js" \
feature. For more information see: https://docs.rs/getrandom/#webassembly-support
   --> getrandom-0.2.17/src/lib.rs:346:9
"""
UNDEFINED = "rust-lld: error: lto.tmp: undefined symbol: __getrandom_v03_custom\n"
LINKER = """\
error: linker `cc` not found
  |
  = note: No such file or directory (os error 2)
"""
OFFLINE = """\
error: failed to download `astrid-sdk v0.7.2`

Caused by:
  attempting to make an HTTP request, but --offline was specified
"""
OFFLINE_UNKNOWN = """\
error: no matching package named `astrid-sdk` found
location searched: crates.io index
required by package `demo v0.1.0 (/tmp/demo)`
As a reminder, you're using offline mode (--offline) which can sometimes cause surprising resolution \
failures, if this error is too confusing you may wish to retry without `--offline`.
"""
NO_NETWORK = """\
error: failed to get `astrid-sdk` as a dependency of package `demo v0.1.0 (/tmp/demo)`

Caused by:
  download of config.json failed

Caused by:
  failed to download from `https://example.org/config.json`

Caused by:
  [6] Could not resolve hostname (Could not resolve host: example.org)
"""
LOCKED = """\
error: cannot update the lock file /tmp/demo/Cargo.lock because --locked was passed to prevent this
help: to generate the lock file without accessing the network, remove the --locked flag and use --offline
"""
EDITION = """\
error: failed to parse manifest at `/tmp/demo/Cargo.toml`

Caused by:
  feature `edition2024` is required

  The package requires the Cargo feature called `edition2024`, but that feature is not stabilized here
"""
RUSTC = (
    "error: rustc 1.80.0 is not supported by the following package:\n  astrid-sdk@0.7.2 requires rustc 1.94\n"
)
DISK = "error: failed to write `/tmp/x`\n\nCaused by:\n  No space left on device (os error 28)\n"


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        (MISSING_TARGET, "wasm-library-missing", "rustup target add wasm32-unknown-unknown"),
        (GETRANDOM_3, "getrandom-backend", '--cfg=getrandom_backend="custom"'),
        (GETRANDOM_2, "getrandom-backend", "cargo tree -i getrandom"),
        (UNDEFINED, "getrandom-backend", "depend on astrid-sdk 0.7.1 or newer"),
        (LINKER, "linker-missing", "the linker `cc` was not found"),
        (OFFLINE, "crates-offline", "the crate `astrid-sdk`, which is not on this machine"),
        (OFFLINE_UNKNOWN, "crates-offline", "the crate `astrid-sdk`, which is not on this machine"),
        (NO_NETWORK, "crates-offline", "the crate `astrid-sdk`, which is not on this machine"),
        (LOCKED, "lock-out-of-date", "build once without --locked"),
        (EDITION, "cargo-too-old", "it does not know edition2024"),
        (RUSTC, "rustc-too-old", "needs rustc 1.94 or newer"),
        (DISK, "disk-full", "the disk is full"),
    ],
)
def test_known_failures_are_explained(output: str, code: str, said: str) -> None:
    error = explain_failure(output, "cargo could not build demo")
    assert error.code == code
    assert said in f"{error.message} {error.hint}"


def test_colour_does_not_hide_a_failure() -> None:
    assert explain_failure(
        "\x1b[0m\x1b[1m\x1b[38;5;9merror\x1b[0m: linker \x1b[1m`cc`\x1b[0m not found", "x"
    ).code == ("linker-missing")


def test_bld_10_no_advice_to_delete_the_lock() -> None:
    words = "error: lock file version 4 requires `-Znext-lockfile-bump`"
    error = explain_failure(words, "x")
    assert (error.code, "delete" in error.hint, "remove" in error.hint) == ("cargo-too-old", False, False)
    assert "only where cargo is rustup's" in error.hint


def test_what_the_compiler_says_best_is_left_to_it() -> None:
    error = explain_failure(
        "error[E0425]: cannot find value `x` in this scope\n", "cargo could not build demo"
    )
    assert (error.code, error.message) == ("cargo-failed", "cargo could not build demo")
