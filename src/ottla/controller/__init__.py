"""What the active controller decides: a request and the current image in, (response, records) out.

Pure. May import `metadata` and what lies below it. Nothing here changes state: the records do, when they are replayed.
Start at `decision.py`, then `topics.py`; every other file is one kind of request.
"""
