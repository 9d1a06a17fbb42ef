"""Changing profiles: one lock for all of them, whole files, and the operator's own comments kept.

The toolchain and the daemon both write here (an install grants, an admin request modifies), so the lock is
between processes.  What a change is allowed to be is decided by who calls; this module only keeps a file
that `principals` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import tomlkit
from tomlkit.exceptions import TOMLKitError

from aos_runtime.errors import NotFound
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.files import FileLock, make_private_folder, read_optional, write_atomic
from aos_runtime.store.principals import (
    ADMIN_GROUP,
    MAX_PROFILE_BYTES,
    Profile,
    damaged_profile,
    read_profile,
)

LOCK_WAIT_S = 10.0


@contextmanager
def profiles_locked(home: Home) -> Iterator[None]:
    """Nobody else changes a profile, a group or a key while the block runs.  Conflict `busy`."""
    make_private_folder(home.profiles_lock.parent)
    lock = FileLock(home.profiles_lock)
    lock.acquire(LOCK_WAIT_S)
    try:
        yield
    finally:
        lock.release()


def change_profile(
    home: Home, principal: PrincipalName, change: Callable[[tomlkit.TOMLDocument], None]
) -> tuple[Profile, Profile]:
    """(lock held) Apply `change` to the document of a profile; the profile before and after.

    NotFound `principal-unknown`; Corrupt `profile-damaged` before anything is written, also where the
    changed document would be no profile.
    """
    before = expect_profile(home, principal)
    path = home.profile(principal)
    data = read_optional(path, MAX_PROFILE_BYTES) or b""
    try:
        document = tomlkit.parse(data.decode("utf-8"))
        change(document)
        text = tomlkit.dumps(document).encode("utf-8")
    except (TOMLKitError, ValueError, TypeError) as error:
        raise damaged_profile(path, error) from error
    if text != data:
        write_atomic(path, text)
    return before, expect_profile(home, principal)


def set_list(document: tomlkit.TOMLDocument, key: str, items: Iterable[str]) -> None:
    """Put a list of texts at `key`, each once, in the order given."""
    document[key] = list(dict.fromkeys(items))


def allow_capsule(home: Home, principal: PrincipalName, capsule: CapsuleName) -> bool:
    """Grant one capsule to a principal that has a profile; whether that was news.

    Who is in the group admin may call everything anyway, and its profile stays short.
    """
    with profiles_locked(home):
        profile = read_profile(home, principal)
        if profile is None or capsule in profile.capsules or ADMIN_GROUP in profile.groups:
            return False
        change_profile(home, principal, lambda text: set_list(text, "capsules", (*profile.capsules, capsule)))
        return True


def disallow_capsule(home: Home, principal: PrincipalName, capsule: CapsuleName) -> bool:
    """Take the grant of one capsule back; whether there was one."""
    with profiles_locked(home):
        profile = read_profile(home, principal)
        if profile is None or capsule not in profile.capsules:
            return False
        left = [name for name in profile.capsules if name != capsule]
        change_profile(home, principal, lambda text: set_list(text, "capsules", left))
        return True


def expect_profile(home: Home, principal: PrincipalName) -> Profile:
    """The profile of a principal that must have one.  NotFound `principal-unknown`."""
    profile = read_profile(home, principal)
    if profile is None:
        raise unknown_principal(principal)
    return profile


def unknown_principal(principal: str) -> NotFound:
    return NotFound(
        "principal-unknown",
        f"principal '{principal}' does not exist",
        hint="`aos agent list` shows who does",
        principal=principal,
    )
