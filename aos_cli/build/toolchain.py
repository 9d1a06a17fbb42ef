"""Which compiler builds a capsule: the pinned one if it really has the target's library, else one that has.

The question is put to the rustc that cargo will call, and answered by looking for `libstd-*.rlib`:
`--print cfg` succeeds without any library (case NEW-07).  Nothing here installs anything, and rustup is told
not to.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from aos_cli.build.process import PROBE_TIMEOUT_S, Command, Finished, run, run_all
from aos_cli.build.rustflags import TARGET
from aos_runtime.errors import AosError, BuildFailed, Unavailable

SELECTOR = "RUSTUP_TOOLCHAIN"
_NO_INSTALL = "RUSTUP_AUTO_INSTALL"
_PIN_FILES = ("rust-toolchain", "rust-toolchain.toml")
INSTALL_RUST = "install Rust from https://rustup.rs, then run `rustup target add wasm32-unknown-unknown`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A rustc that answered: `release` is `1.95.0`, `libraries` the folder of the target's std."""

    rustc: str
    release: str
    commit: str
    sysroot: Path
    libraries: Path

    @property
    def has_target(self) -> bool:
        """Whether std and core for the target are really there."""
        return all(any(self.libraries.glob(f"lib{crate}-*.rlib")) for crate in ("std", "core"))

    @property
    def is_rustups(self) -> bool:
        """Whether rustup installed it, so that rustup can add to it."""
        return "toolchains" in self.sysroot.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The toolchain that the project asks for, and the file or variable that says so."""

    channel: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The compiler of one build.  `environ` is added to cargo's; `problem` says why the pin is not used."""

    compiler: Compiler
    cargo: str = "cargo"
    name: str | None = None
    pin: Pin | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    fix: str | None = None

    @property
    def is_fallback(self) -> bool:
        return self.problem is not None

    def to_json(self) -> dict[str, object]:
        """For the build record."""
        return {
            "rustc": self.compiler.release,
            "commit": self.compiler.commit or None,
            "toolchain": self.name,
            "pinned": self.pin.channel if self.pin else None,
            "pinned_by": self.pin.source if self.pin else None,
            "fallback": self.is_fallback,
            "fix": self.fix,
        }


def probe_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` for rustup's proxies: what is missing is reported, never installed on the way."""
    return {_NO_INSTALL: "0", **environ}


def choose_toolchain(folder: Path, environ: Mapping[str, str], *, rustc: str, locked: bool) -> Toolchain:
    """The toolchain to build the project in `folder` with (issue 3, section 3).

    Unavailable `rust-missing`, `wasm-target-missing`; BuildFailed `toolchain-not-pinned` where `locked`
    forbids another one than the pin.
    """
    pin = find_pin(folder, environ)
    found = _probe(rustc, folder, environ)
    if isinstance(found, Compiler) and found.has_target:
        problem = _pin_problem(pin, found)
        fix = fix_command(pin, found, environ) if problem else None
        own = Toolchain(compiler=found, pin=pin, problem=problem, fix=fix)
        return _refuse_fallback(own) if problem and locked else own
    fix = fix_command(pin, found, environ)
    problem = _describe(pin, found)
    other = _newest_other(folder, environ)
    if other is None:
        raise Unavailable("wasm-target-missing", problem, hint=f"run `{fix}`", command=fix, target=TARGET)
    fallback = replace(other, pin=pin, problem=problem, fix=fix)
    return _refuse_fallback(fallback) if locked else fallback


def find_target_problem(folder: Path, environ: Mapping[str, str], *, rustc: str) -> tuple[str, str] | None:
    """What is wrong with the compiler of `folder`, and the command that mends it; None where nothing is."""
    found = _probe(rustc, folder, environ)
    if isinstance(found, Compiler) and found.has_target:
        return None
    pin = find_pin(folder, environ)
    return _describe(pin, found), fix_command(pin, found, environ)


def find_pin(folder: Path, environ: Mapping[str, str]) -> Pin | None:
    """`RUSTUP_TOOLCHAIN`, else the nearest toolchain file upward, as rustup looks for it."""
    if environ.get(SELECTOR):
        return Pin(channel=environ[SELECTOR], source=SELECTOR)
    for parent in (folder, *folder.parents):
        for name in _PIN_FILES:
            channel = _read_channel(parent / name)
            if channel:
                return Pin(channel=channel, source=name)
    return None


def has_rustup(environ: Mapping[str, str]) -> bool:
    return shutil.which("rustup", path=environ.get("PATH")) is not None


def fix_command(pin: Pin | None, found: Compiler | Finished, environ: Mapping[str, str]) -> str:
    """The one command that makes the pinned (or default) toolchain usable."""
    rustup = shutil.which("rustup", path=environ.get("PATH"))
    if rustup is None:
        return "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    if isinstance(found, Compiler) and not found.is_rustups:
        return f'export PATH="{Path(rustup).parent}:$PATH"'
    if isinstance(found, Finished):
        return f"rustup toolchain install {pin.channel if pin else 'stable'} --target {TARGET}"
    return f"rustup target add {TARGET}" + (f" --toolchain {pin.channel}" if pin else "")


def _read_channel(path: Path) -> str | None:
    """The channel of a toolchain file, in TOML or in the old form of one bare line."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    try:
        section = tomllib.loads(text).get("toolchain")
    except tomllib.TOMLDecodeError:
        return text.strip() if len(text.split()) == 1 else None
    channel = section.get("channel") if isinstance(section, dict) else None
    return channel if isinstance(channel, str) else None


def _probe(rustc: str, folder: Path, environ: Mapping[str, str]) -> Compiler | Finished:
    """Ask a rustc for version and folders; Finished is how it failed (say, a toolchain not installed)."""
    quiet = probe_environ(environ)

    def command(*arguments: str) -> Command:
        return Command(arguments=(rustc, *arguments), folder=folder, environ=quiet, timeout_s=PROBE_TIMEOUT_S)

    try:
        version, folders = run_all(
            command("-vV"), command("--target", TARGET, "--print", "sysroot", "--print", "target-libdir")
        )
    except Unavailable as error:
        raise _rust_missing(error) from error
    lines = folders.stdout.decode("utf-8", "surrogateescape").splitlines()
    if version.status or folders.status or len(lines) != 2:
        return version if version.status else folders
    facts = dict(line.split(": ", 1) for line in version.stdout.decode().splitlines() if ": " in line)
    return Compiler(
        rustc=shutil.which(rustc, path=environ.get("PATH")) or rustc,
        release=facts.get("release", "unknown"),
        commit=facts.get("commit-hash", "").replace("unknown", ""),
        sysroot=Path(lines[0]),
        libraries=Path(lines[1]),
    )


def _rust_missing(error: AosError) -> Unavailable:
    return Unavailable("rust-missing", f"{error.message}, and a capsule is compiled by it", hint=INSTALL_RUST)


def _describe(pin: Pin | None, found: Compiler | Finished) -> str:
    """Why the toolchain that cargo would use cannot build a capsule."""
    if isinstance(found, Finished):
        what = f"the toolchain `{pin.channel}` ({pin.source})" if pin else "the default Rust toolchain"
        said = found.stderr.strip().splitlines()
        return f"{what} cannot be used" + (f": {said[0].removeprefix('error: ')}" if said else "")
    whose = (
        f"toolchain `{pin.channel}` ({pin.source})" if pin and found.is_rustups else f"rustc {found.release}"
    )
    where = f"{whose} has no library for {TARGET}: {found.rustc} looks for it below {found.sysroot}"
    return where if found.is_rustups else f"{where}, where rustup adds nothing"


def _pin_problem(pin: Pin | None, found: Compiler) -> str | None:
    """A toolchain file works only under rustup: a distribution's rustc never reads it (case BLD-10)."""
    if pin is None or pin.source == SELECTOR or not pin.channel[:1].isdigit():
        return None
    wanted = pin.channel.split("-")[0]
    if found.release == wanted or found.release.startswith(wanted + "."):
        return None
    return f"{pin.source} pins {wanted}, {found.rustc} is {found.release}: the pin works only under rustup"


def _refuse_fallback(toolchain: Toolchain) -> Toolchain:
    raise BuildFailed(
        "toolchain-not-pinned",
        f"{toolchain.problem}, and --locked allows no other toolchain",
        hint=f"run `{toolchain.fix}`, or build without --locked",
        fix=toolchain.fix,
    )


def _newest_other(folder: Path, environ: Mapping[str, str]) -> Toolchain | None:
    """The newest usable toolchain of rustup or on PATH; a release wins over its own prereleases."""
    usable = [one for one in _candidates(folder, environ) if one.compiler.has_target]
    return max(usable, key=lambda one: _order(one.compiler.release), default=None)


def _candidates(folder: Path, environ: Mapping[str, str]) -> Iterator[Toolchain]:
    for name, path in _rustup_toolchains(folder, environ):
        if any((path / "lib" / "rustlib" / TARGET / "lib").glob("libstd-*.rlib")):
            compiler = _probe(str(path / "bin" / "rustc"), folder, environ)
            if isinstance(compiler, Compiler):
                yield Toolchain(compiler=compiler, name=name, environ={SELECTOR: name})
    for directory in environ.get("PATH", "").split(os.pathsep):
        rustc, cargo = Path(directory) / "rustc", Path(directory) / "cargo"
        if directory and all(os.access(one, os.X_OK) for one in (rustc, cargo)) and not _is_proxy(rustc):
            compiler = _probe(str(rustc), folder, environ)
            if isinstance(compiler, Compiler):
                yield Toolchain(compiler=compiler, cargo=str(cargo), environ={"RUSTC": str(rustc)})


def _rustup_toolchains(folder: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """`rustup toolchain list -v`: a name, perhaps remarks in brackets, a path."""
    if not has_rustup(environ):
        return
    listing = run(
        Command(
            arguments=("rustup", "toolchain", "list", "-v"),
            folder=folder,
            environ={key: value for key, value in probe_environ(environ).items() if key != SELECTOR},
            timeout_s=PROBE_TIMEOUT_S,
        )
    )
    for line in listing.stdout.decode("utf-8", "surrogateescape").splitlines():
        name, _, rest = line.partition(" ")
        path = rest.rpartition(") ")[2] if rest.startswith("(") else rest
        if path.strip().startswith("/"):
            yield name, Path(path.strip())


def _is_proxy(rustc: Path) -> bool:
    """Whether this `rustc` is rustup in disguise (a link to it, or the same file)."""
    rustup = rustc.with_name("rustup")
    return rustup.exists() and rustup.samefile(rustc)


def _order(release: str) -> tuple[tuple[int, ...], bool]:
    number, _, prerelease = release.partition("-")
    return tuple(int(part) for part in number.split(".") if part.isdigit()), not prerelease
