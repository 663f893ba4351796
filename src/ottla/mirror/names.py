"""Default names of the two clusters of a mirror: the pipeline and the commands of `ottla mirror` have the same."""

from __future__ import annotations

from typing import Final

SOURCE: Final = "source"
DESTINATION: Final = "destination"
