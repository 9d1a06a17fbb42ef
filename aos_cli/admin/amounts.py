"""Sizes and durations as people write them: `64MiB`, `1h30m`.  Pure."""

from __future__ import annotations

import re

import typer

_SIZES = {"": 1, "B": 1}
_SIZES |= {f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", start=1)}
_SIZES |= {letter: 1024**power for power, letter in enumerate("KMGT", start=1)}
_SIZES |= {f"{letter}B": 1024**power for power, letter in enumerate("KMGT", start=1)}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_PART = re.compile(r"(\d+)(ms|s|m|h|d)")
UNLIMITED = 2**63 - 1


def parse_size(text: str) -> int:
    """`512`, `64KiB`, `1.5 GiB`, `unlimited` in bytes; every unit is a power of 1024.  A usage error else."""
    if text.strip().lower() == "unlimited":
        return UNLIMITED
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _SIZES.get(match[2].upper())
    if match is None or unit is None:
        raise typer.BadParameter(f"{text[:40]!r} is not a size; for example 64MiB, 1.5GiB or 512KiB")
    return int(float(match[1]) * unit)


def parse_seconds(text: str) -> int:
    """`90`, `90s`, `1h30m`, `1500ms` in whole seconds, rounded up.  A usage error else."""
    if text.strip().isdigit():
        return int(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise typer.BadParameter(f"{text[:40]!r} is not a duration; for example 30s, 5m or 1h30m")
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in parts)
    return int(-(-seconds // 1))
