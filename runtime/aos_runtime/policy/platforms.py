"""How a person on another platform is named: platform, id there, and the words that go with them.

One spelling for each platform, so that `Discord` and `discord ` are one; ids are the platform's own and stay
as they are.  Nothing with control characters is a name, since names are shown.
"""

from __future__ import annotations

import re
import unicodedata

MAX_PLATFORM_CHARACTERS = 64
MAX_METHOD_CHARACTERS = 64
MAX_UPLINK_CHARACTERS = 128
MAX_ID_CHARACTERS = 256
"""Of a person on a platform."""
MAX_NAME_CHARACTERS = 256

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UNSHOWN = frozenset(("Cc", "Cs", "Zl", "Zp"))


def read_platform(text: str) -> str | None:
    """The one spelling of a platform's name; None where it is none."""
    return read_text(text.strip().lower(), MAX_PLATFORM_CHARACTERS)


def read_text(text: str, limit: int) -> str | None:
    """`text` where it has 1 to `limit` characters and none that controls; else None."""
    if not text or len(text) > limit:
        return None
    return None if any(unicodedata.category(one) in _UNSHOWN for one in text) else text


def read_user_id(text: str) -> str | None:
    """The one spelling of a user's id, a UUID; None where it is none."""
    return text.lower() if _UUID.fullmatch(text) else None
