"""Programs for those who work on Ottla: they render the pages of `docs/` that come from the code."""
