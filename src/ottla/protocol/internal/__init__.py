"""Records that brokers write for brokers: metadata, consumer groups, offsets, transactions, quorum control records.

`codec.py` encodes the classes of `schemas/records.py`; the modules beside it put the frames around them.
May import what `ottla.protocol` may. Start with `codec.py`.
"""
