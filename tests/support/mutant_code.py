"""Puts a changed function in the place of the one that is loaded, wherever it is held.

Only what runs when it is called can be put in place.  What runs while a module is imported has left its
results everywhere by then, so such a change needs a process that imports everything anew.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

Key = tuple[str, str, int]
"""File, qualified name and first line of a function."""


def key_of(code: CodeType) -> Key:
    return (code.co_filename, code.co_qualname, code.co_firstlineno)


def loaded_functions(files: frozenset[str]) -> dict[Key, list[FunctionType]]:
    """Every function of these files that is alive, under whatever decorator or class."""
    found: dict[Key, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in files:
            found.setdefault(key_of(thing.__code__), []).append(thing)
    return found


def changed_functions(old: CodeType, new: CodeType) -> list[CodeType] | None:
    """The functions of a module that differ; None where something else differs too, that runs at import."""
    if _shell(old) != _shell(new):
        return None
    found: list[CodeType] = []
    for before, after in zip(_inner(old), _inner(new), strict=True):
        if before.co_flags & inspect.CO_OPTIMIZED:
            found += [after] if before != after else []
        elif (deeper := changed_functions(before, after)) is None:
            return None
        else:
            found += deeper
    return found


def put_in_place(code: CodeType, functions: dict[Key, list[FunctionType]]) -> bool:
    """Whether it could be done: never for a function nobody holds, nor for one with other free variables."""
    held = functions.get(key_of(code), [])
    if not held or any(len(one.__code__.co_freevars) != len(code.co_freevars) for one in held):
        return False
    for one in held:
        one.__code__ = code
    return True


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _shell(code: CodeType) -> tuple[object, ...]:
    """The code of a module or class without the insides of what it defines; `1` is not `True`."""
    constants = [
        one.co_qualname if isinstance(one, CodeType) else (type(one), repr(one)) for one in code.co_consts
    ]
    return (
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_exceptiontable,
        constants,
    )
