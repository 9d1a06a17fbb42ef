"""Small C libraries that a test preloads into a process of its own, to do to it what a machine may do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

COMPILE_TIMEOUT_S = 120


def build_shim(name: str, folder: Path) -> Path:
    """Compile `name`.c of this folder.  RuntimeError with the compiler's words, or where there is none."""
    target = folder / f"{name}.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        raise RuntimeError(f"{name} needs Linux and a C compiler (apt-get install gcc)")
    source = Path(__file__).with_name(f"{name}.c")
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O2",
        "-Wall",
        "-Wextra",
        "-o",
        str(target),
        str(source),
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}.c does not compile: {done.stderr}")
    return target
