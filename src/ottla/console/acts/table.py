"""All acts. Pages, API, OpenAPI, the tables in docs/console.md and the tests are made of these rows."""

from __future__ import annotations

from typing import Final

from ottla.console.acts import (
    cluster,
    groups,
    moves,
    records,
    schemas,
    security,
    settings,
    throttles,
    topics,
    transactions,
)
from ottla.console.acts.act import Act

ACTS: Final[tuple[Act, ...]] = (
    *topics.ACTS, *records.ACTS, *settings.ACTS, *groups.ACTS, *transactions.ACTS, *security.ACTS, *cluster.ACTS,
    *moves.ACTS, *throttles.ACTS, *schemas.ACTS,
)  # fmt: skip
BY_NAME: Final = {each.name: each for each in ACTS}
