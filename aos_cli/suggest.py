"""Which known name was probably meant: edit distance, pure.

The rule is the published client's (cli-ux 1.1): at most max(2, length / 3) edits, nearest first, ties in
alphabetical order, an exact match never suggested.
"""

from __future__ import annotations

from collections.abc import Iterable


def edit_distance(left: str, right: str) -> int:
    """Levenshtein distance between two short strings."""
    row = list(range(len(right) + 1))
    for index, a in enumerate(left, start=1):
        previous, row[0] = row[0], index
        for column, b in enumerate(right, start=1):
            previous, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, previous + (a != b)),
            )
    return row[-1]


def nearest_names(typed: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """The known names near enough to `typed`, nearest first, at most `limit`."""
    typed = typed[:128]
    bound = max(2, len(typed) // 3)
    scored = sorted((edit_distance(typed, name), name) for name in set(known) if name != typed)
    return tuple(name for distance, name in scored if distance <= bound)[:limit]


def did_you_mean(names: Iterable[str]) -> str:
    """`did you mean `a` or `b`?`, or an empty string where there is nothing to suggest."""
    quoted = [f"`{name}`" for name in names]
    if not quoted:
        return ""
    return f"did you mean {', '.join(quoted[:-1])}{' or ' if len(quoted) > 1 else ''}{quoted[-1]}?"
