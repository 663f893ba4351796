"""Python workers of Spark: their modules are exempt from collections of cycles.

Spark's daemon (`pyspark.daemon`) calls `gc.collect` after each task and after each step of planning a query. With
PyArrow and pandas imported that took 47 ms of CPU: a sixth of a task that writes 250 MB, and most of a small one.
"""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"
_frozen = 0
"""How many modules there were when objects were frozen last."""


def freeze_modules() -> None:
    """Exempt all objects that exist from `gc.collect`, if modules were imported since the last time.

    Does nothing outside of Spark's workers: other processes do not collect so often, and their memory is the user's.
    """
    global _frozen
    if _is_worker() and _frozen != len(sys.modules):
        _frozen = len(sys.modules)
        gc.collect()  # a cycle that nobody needs would otherwise stay for good
        gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON
