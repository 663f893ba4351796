"""The wire protocol and the record batch, pure: bytes in, values out.

`messages.py` has every API through kio's schemas, `produce.py` and `fetch.py` the two hot ones by hand,
`record_batch.py` the v2 batch that is the same on the wire and on disk, `internal/` the records only brokers write.
May import `ottla.config`, `ottla.model` and `ottla.errors`. Start with `record_batch.py`.
"""
