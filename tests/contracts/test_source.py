"""Rules over the source text: sizes, broad handlers, the import law, names of machines."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE_MAX_LINES = 400
BROAD_HANDLER_PLACES = {
    "aos_cli/app.py",
    "runtime/aos_runtime/host/boundary.py",
    "runtime/aos_runtime/programs/mcp.py",
    "runtime/aos_runtime/programs/children.py",
    "runtime/aos_runtime/kernel/audit.py",
    "runtime/aos_runtime/kernel/leader.py",
    "runtime/aos_runtime/kernel/requests.py",
    "runtime/aos_runtime/kernel/runloop.py",
    "runtime/aos_runtime/kernel/ticker.py",
    "runtime/aos_runtime/daemon/gateway.py",
    "runtime/aos_runtime/daemon/process.py",
    "runtime/aos_runtime/daemon/tails.py",
}
"""The one except of the command line, the host boundary, and the tops of threads.  What cleans up and raises
again is not meant."""


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


def product_modules() -> list[Path]:
    return [
        path
        for path in tracked_files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in {"aos_cli", "runtime", "bench"}
    ]


def test_there_is_source_to_check() -> None:
    assert len(product_modules()) > 20


def test_no_module_is_longer_than_the_limit() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): _line_count(path) for path in product_modules()}
    assert {name: lines for name, lines in sizes.items() if lines > MODULE_MAX_LINES} == {}


def test_broad_handlers_stand_at_three_kinds_of_edges_only() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in product_modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises_again(node)
    }
    assert found <= BROAD_HANDLER_PLACES


def test_the_import_law_holds() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "runtime")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_file_names_a_machine_a_registry_host_or_a_folder_beside_the_checkout() -> None:
    forbidden = re.compile(
        "|".join(
            [
                re.escape("/".join(["", "work", "main"])),
                re.escape("/".join(["", "root", ""])),
                re.escape("/".join(["..", "shared"])),
                re.escape("/".join(["", "tmp", "plan"])),
                r"index\." + r"crates\.io|static\." + r"crates\.io",
                r"pypi\." + r"org|files\." + r"pythonhosted",
            ]
        )
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in tracked_files()
        if path.name != "Cargo.lock"
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if forbidden.search(line)
    ]
    assert found == []


def test_only_a_missing_shell_may_skip_a_test() -> None:
    """And never in CI, where a skipped test fails the run (tests/conftest.py)."""
    marks = re.compile(r"\b(skip|skipif|xfail|importorskip)\(|mark\.(skip|xfail)")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0] == "tests"
        and path != Path(__file__).resolve()
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if marks.search(line) and "shutil.which(" not in line
    ]
    assert found == []


def test_a_whole_run_enters_every_folder_of_tests(request: pytest.FixtureRequest) -> None:
    """pytest passes over folders called `build` and `dist`, which are rooms here, unless told otherwise."""
    passed_over = request.config.getini("norecursedirs")
    files = [path.relative_to(ROOT) for path in tracked_files() if path.match("test_*.py")]
    parts = {part for path in files for part in path.parts[:-1]}
    assert "build" in parts
    assert [part for part in sorted(parts) if any(fnmatch(part, one) for one in passed_over)] == []


def test_nothing_is_left_unfinished() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked_files()
        if path.suffix in {".py", ".rs", ".wat"} and path.relative_to(ROOT).parts[0] != "tests"
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if words.search(line)
    ]
    assert found == []


def _line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _is_broad(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(name, ast.Name) and name.id in {"Exception", "BaseException"} for name in names)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _text(path: Path) -> str:
    data = path.read_bytes()
    return "" if b"\0" in data[:4096] else data.decode("utf-8", errors="replace")


STOCK_CONVERSION = {
    "LinkerInstance",
    "Linker",
    "ResourceAny",
    "ResourceHost",
    "convert_to_c",
    "convert_from_c",
}


def test_values_cross_to_components_by_our_own_codecs_only() -> None:
    """The binding's own conversion shares state between threads and cannot return some errors (ADR 0014)."""
    found = {
        f"{path.name}: {node.attr}"
        for path in product_modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in STOCK_CONVERSION and _is_of_wasmtime(node.value)
    }
    imported = {
        f"{path.name}: {alias.name}"
        for path in product_modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wasmtime.component")
        for alias in node.names
        if alias.name != "Component"
    }
    assert found | imported == set()


def _is_of_wasmtime(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Name) and value.id == "raw_component")


@pytest.mark.parametrize("room", ["host", "network", "programs"])
def test_no_two_modules_of_a_room_need_each_other(room: str) -> None:
    graph = grimp.build_graph("aos_runtime")
    modules = graph.find_descendants(f"aos_runtime.{room}")
    circles = {
        (importer, imported)
        for importer in modules
        for imported in graph.find_modules_directly_imported_by(importer) & modules
        if graph.chain_exists(importer=imported, imported=importer)
    }
    assert circles == set()
