"""Avro, JSON Schema and Protobuf: how a schema of each type is parsed, and when one may follow another.

May import what is below the registry, and of the registry only records. `parsed.py` is what all types share,
`compatibility.py` the levels; a type begins at `avro_schema.py`, `json_schema.py` or `protobuf_schema.py`.
"""
