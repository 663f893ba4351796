"""Which settings have values that nobody may see."""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(r"password|secret|jaas|token|(?:^|\.)key(?:\.pem)?$|credential|user\.info", re.IGNORECASE)
_NO_SECRET: Final = ("location", ".url", ".type", ".class", ".id")


def is_secret(name: str) -> bool:
    """Whether the value of a setting must not be shown: by its name, as Spark's `spark.redaction.regex` does."""
    return _SECRET.search(name) is not None and not name.endswith(_NO_SECRET)
