"""Which settings have values that nobody may see."""

from __future__ import annotations

import re
from typing import Any, Final

_SECRET: Final = re.compile(r"password|secret|jaas|token|(?:^|\.)key(?:\.pem)?$|credential|user\.info", re.IGNORECASE)
_NO_SECRET: Final = ("location", ".url", ".type", ".class", ".id")


_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@")
_OPTION_OF_DSN: Final = re.compile(r"\bpassword\s*=\s*[^\s,\]]", re.IGNORECASE)
HIDDEN: Final = "[hidden]"


def has_secret(value: str) -> bool:
    """Whether a value has a password in it: as a URL, or a DSN, has."""
    return bool(_URL.search(value) or _OPTION_OF_DSN.search(value))


def shown(name: str, value: Any) -> Any:
    """The value of a setting, as a page or a file of a program may have it."""
    return HIDDEN if is_secret(name) or (isinstance(value, str) and has_secret(value)) else value


def is_secret(name: str) -> bool:
    """Whether the value of a setting must not be shown: by its name, as Spark's `spark.redaction.regex` does."""
    return _SECRET.search(name) is not None and not name.endswith(_NO_SECRET)
