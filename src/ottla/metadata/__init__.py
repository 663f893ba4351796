"""The cluster's metadata as an immutable image, and how records of the metadata log change it.

Pure. May import `quorum`, `protocol` and what lies below them, never a driver or the server.
Start at `image.py`, then `delta.py` (what a stretch of the log changed) and `replay.py` (one function per record).
"""
