"""Figures into a table or JSON: pure.  A figure is the median of its runs, the spread lowest to highest."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass

from bench.targets import TARGETS, Target

ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The runs of one target, in its unit, and what the published runtime gives for it where it is
    present."""

    key: str
    runs: tuple[float, ...]
    published: float | None = None

    @property
    def target(self) -> Target:
        return TARGETS[self.key]

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def is_met(self) -> bool:
        return self.target.is_met(self.median)


def render_table(figures: list[Figure], conditions: dict[str, str]) -> str:
    """The figures as aligned text, the conditions first."""
    lines = [f"{name}: {value}" for name, value in conditions.items()]
    rows = [("figure", "median", "spread", "target", "", "published")]
    rows += [_row(figure) for figure in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines.append("")
    for row in rows:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return "\n".join(lines) + "\n"


def _row(figure: Figure) -> tuple[str, str, str, str, str, str]:
    target = figure.target
    sign = ">=" if target.at_least else "<"
    bound = "none" if target.bound is None else f"{sign} {_number(target.bound)} {target.unit}"
    return (
        target.title,
        f"{_number(figure.median)} {target.unit}",
        f"{_number(min(figure.runs))} to {_number(max(figure.runs))}",
        bound,
        "ok" if figure.is_met else "FALLS SHORT",
        ABSENT if figure.published is None else f"{_number(figure.published)} {target.unit}",
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def render_json(figures: list[Figure], conditions: dict[str, str]) -> str:
    """Version 1: `{"version", "conditions", "figures": [...], "met"}`."""
    return json.dumps(
        {
            "version": 1,
            "conditions": conditions,
            "figures": [
                {
                    "key": figure.key,
                    "measure": figure.target.measure,
                    "title": figure.target.title,
                    "unit": figure.target.unit,
                    "runs": list(figure.runs),
                    "median": figure.median,
                    "target": figure.target.bound,
                    "at_least": figure.target.at_least,
                    "met": figure.is_met,
                    "published": ABSENT if figure.published is None else figure.published,
                }
                for figure in figures
            ],
            "met": all(figure.is_met for figure in figures),
        },
        indent=2,
    )
