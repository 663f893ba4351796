"""Libraries that Ottla does without until a command needs them, and the extra that installs them."""

from __future__ import annotations

LIBRARIES = {
    "avro": "registry",
    "cryptography": "security",
    "delta": "lake",
    "duckdb": "sql",
    "fastavro": "registry",
    "google": "registry",
    "grpc_tools": "registry",
    "httpx": "registry",
    "itsdangerous": "console",
    "jinja2": "console",
    "jsonschema": "registry",
    "gssapi": "kerberos",
    "jwt": "security",
    "orjson": "registry",
    "pandas": "spark",
    "psycopg": "postgres",
    "pyarrow": "arrow",
    "pyiceberg": "lake",
    "pyspark": "spark",
    "starlette": "registry",
    "uvicorn": "registry",
}
"""Keyed by the name that is imported."""
EXTRAS = {
    "console": "console",
    "mirror": "pipelines",
    "pipeline": "pipelines",
    "registry": "registry",
    "schema": "registry",
    "spark": "spark",
    "sql": "sql",
}
"""Keyed by command: the extra that has all that it needs."""
ALONE = frozenset({"lake", "postgres"})
"""Extras of single pipelines: `pipelines` does not have their libraries."""


def missing(error: ImportError, command: str) -> str | None:
    """The package to install, if a library of an extra cannot be imported; None for other errors."""
    library = (error.name or "").partition(".")[0]
    extra = LIBRARIES.get(library)
    if extra is None:
        return None
    if extra not in ALONE:
        extra = EXTRAS.get(command, extra)
    return f"{library} is not installed\n  install it with: pip install 'ottla[{extra}]'"
