"""The index that shell completion reads: one `kind<TAB>name` a line, kinds capsule, tool and template.

A line holds only names that were checked or are plain printable text, so that shell code can use it unquoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.files import make_private_folder, read_optional, write_atomic
from aos_runtime.store.installed import list_names
from aos_runtime.store.sweep import list_principal_folders

MAX_INDEX_BYTES = 4 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


def rebuild(home: Home, *, templates: Iterable[str] | None = None) -> None:
    """Write the index anew from what is installed and what the daemon learned about tools.

    `templates` are the names to list; None keeps those that are listed.
    """
    known = _read_templates(home) if templates is None else templates
    rows = {("template", name) for name in known}
    for principal in list_principal_folders(home):
        names = list_names(home, principal)
        rows.update(("capsule", name) for name in names)
        tools = read_tools(home, principal)
        rows.update(("tool", tool) for name in names for tool in tools.get(name, ()))
    text = "".join(f"{kind}\t{name}\n" for kind, name in sorted(rows) if _NAME.fullmatch(name))
    data = text.encode("ascii")
    if read_optional(home.names_index, MAX_INDEX_BYTES) != data:
        make_private_folder(home.names_index.parent)
        write_atomic(home.names_index, data, sync=False)


def record_tools(home: Home, principal: PrincipalName, tools: Mapping[CapsuleName, Sequence[str]]) -> None:
    """Remember which tools the capsules of `principal` described, then rebuild the index."""
    path = home.tools_file(principal)
    text = json.dumps({name: sorted(names) for name, names in tools.items()}, sort_keys=True)
    make_private_folder(path.parent)
    write_atomic(path, f"{text}\n".encode(), sync=False)
    rebuild(home)


def read_tools(home: Home, principal: PrincipalName) -> dict[str, tuple[str, ...]]:
    """The tools that each capsule described last; nothing where that was never recorded or is damaged."""
    data = read_optional(home.tools_file(principal), MAX_INDEX_BYTES)
    try:
        value = json.loads(data or b"{}")
        return {str(name): tuple(str(tool) for tool in tools) for name, tools in value.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _read_templates(home: Home) -> tuple[str, ...]:
    data = read_optional(home.names_index, MAX_INDEX_BYTES) or b""
    rows = (line.partition("\t") for line in data.decode("utf-8", "replace").splitlines())
    return tuple(name for kind, _, name in rows if kind == "template")
