"""How far a file is from the modules it imports, read from the source and not by importing it."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path


def distances(file: Path, roots: Sequence[Path]) -> dict[Path, int]:
    """Every file below the roots that `file` imports, and over how many imports it comes to it."""
    found = {file: 0}
    waiting = deque([file])
    while waiting:
        here = waiting.popleft()
        for there in _imported(here, tuple(roots)):
            if there not in found:
                found[there] = found[here] + 1
                waiting.append(there)
    return found


@cache
def _imported(file: Path, roots: tuple[Path, ...]) -> tuple[Path, ...]:
    tree = ast.parse(file.read_bytes(), str(file))
    places = (root.joinpath(*name.split(".")) for name in _names(tree) for root in roots)
    files = (path for place in places for path in (place.with_suffix(".py"), place / "__init__.py"))
    return tuple(path for path in files if path.is_file())


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
