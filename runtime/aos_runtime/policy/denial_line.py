"""The one line by which a capsule's log tells of a refusal, whatever was refused.

`denied operation=... <what>="..." case=... rule="..." allow="..." repeated=N`: what a guest named is quoted
and cut, so that it can neither end the field nor fill the log.
"""

from __future__ import annotations

import json

MAX_NAMED_CHARS = 300


def render_denial(
    operation: str, named: tuple[str, str], rule: str, *, case: str | None, allow: str | None, repeated: int
) -> str:
    """The line.  `named` is the name of a field and what was named in it; `allow` what would allow it.

    `repeated` is how often it was not logged since the last line.
    """
    fields = [f"denied operation={operation}", f"{named[0]}={quoted(named[1][:MAX_NAMED_CHARS])}"]
    if case is not None:
        fields.append(f"case={case}")
    fields.append(f"rule={quoted(rule)}")
    if allow is not None:
        fields.append(f"allow={quoted(allow)}")
    if repeated:
        fields.append(f"repeated={repeated}")
    return " ".join(fields)


def quoted(text: str) -> str:
    """`text` as a JSON string."""
    return json.dumps(text, ensure_ascii=False)
