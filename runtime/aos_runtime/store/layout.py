"""Whether a home may be used, decided before anything is written to it.

A home of the published runtime is left alone: it would not survive two owners (architecture.md section 2,
measured: a published daemon folds layout `1` into one file and refuses `aos-1`).  This module writes the
layout file of a new home and nothing else; the folders beside it are made by whoever writes into them.
"""

from __future__ import annotations

import os
import stat

from aos_runtime.errors import Conflict, Denied
from aos_runtime.home import LAYOUT_VERSION, Home
from aos_runtime.store.files import (
    is_locked,
    list_folder,
    make_private_folder,
    read_optional,
    sweep_temporaries,
    write_once,
)

VOLUME_FILE = "astrid.volume"
LIFECYCLE_LOCKS = "astrid-lifecycle-*/runtime.lock"
MAX_LAYOUT_BYTES = 256


def open_home(home: Home, *, create: bool) -> None:
    """Check that `home` is ours to use and, with `create`, that it exists.

    Without `create` nothing is written and a home that does not exist yet is fine.  Conflict `home-foreign`
    where another runtime owns the folder, Denied `home-owner` where another user does, Unavailable where it
    cannot be written; all of them before the first write.
    """
    _check_owner(home)
    layout = _read_layout(home)
    _check_foreign(home, layout)
    if layout == LAYOUT_VERSION or not create:
        return
    make_private_folder(home.etc)
    sweep_temporaries(home.etc)
    if not write_once(home.layout_file, f"{LAYOUT_VERSION}\n".encode()):
        _check_foreign(home, _read_layout(home))


def _read_layout(home: Home) -> str | None:
    data = read_optional(home.layout_file, MAX_LAYOUT_BYTES)
    return None if data is None else data.decode("utf-8", "replace").strip()


def _check_foreign(home: Home, layout: str | None) -> None:
    for folder in (home.root, home.state):
        if os.path.lexists(folder / VOLUME_FILE):
            raise _foreign(home, f"it holds `{VOLUME_FILE}`, the state of another runtime")
    if layout is not None and layout != LAYOUT_VERSION:
        raise _foreign(home, _unknown_layout(layout))
    if layout is None:
        _check_unmarked(home)
    for lock in home.root.glob(LIFECYCLE_LOCKS):
        if is_locked(lock):
            raise _foreign(home, "another runtime is starting or stopping on it")


def _check_unmarked(home: Home) -> None:
    """Without a layout file only `etc` may be there: a killed creation leaves it, and so do settings.

    Another process may create the home at this moment: the file is looked for again before anything is said.
    """
    strangers = [path.name for path in list_folder(home.state) if path.name != "etc"]
    strangers += [
        path.name
        for path in list_folder(home.etc)
        if path != home.config_file and not path.name.startswith(".layout-version.")
    ]
    if not strangers:
        return
    layout = _read_layout(home)
    if layout is None:
        raise _foreign(home, f"it has no layout file but holds `{strangers[0]}`")
    if layout != LAYOUT_VERSION:
        raise _foreign(home, _unknown_layout(layout))


def _unknown_layout(layout: str) -> str:
    return f"its layout is {layout[:40]!r}, and this aos knows only {LAYOUT_VERSION!r}"


def _check_owner(home: Home) -> None:
    try:
        facts = home.state.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    if facts.st_uid != os.getuid():
        raise Denied(
            "home-owner",
            f"{home.state} belongs to another user (uid {facts.st_uid})",
            hint="set AOS_HOME to a folder of your own",
            path=str(home.state),
        )
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Denied(
            "home-writable-by-others",
            f"{home.state} can be written by other users",
            hint=f"run `chmod go-w {home.state}`",
            path=str(home.state),
        )


def _foreign(home: Home, reason: str) -> Conflict:
    return Conflict(
        "home-foreign",
        f"{home.state} is not a home of aos: {reason}",
        hint="point aos at a home of its own, for example: export AOS_HOME=$HOME/.aos-home",
        path=str(home.state),
    )
