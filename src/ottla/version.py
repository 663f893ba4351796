"""The version of this Ottla. `pyproject.toml` has it from here; `make release` writes it."""

VERSION = "0.1.0"
