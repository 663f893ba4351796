"""Ottla: Apache Kafka's job done in Python. The tree is the architecture: a folder per layer, imports point down.

Each package's `__init__` says what lives there, what it may import and where to start; `docs/architecture.md` has the
whole. Nothing is imported here, so that a program pays only for what it uses.
"""

import os as _os

if _os.environ.get("OTTLA_INTERPRETED"):
    from ottla import interpreted

    interpreted.install()
