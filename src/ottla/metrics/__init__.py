"""What a node counts, under which names it exposes it, and the text in which Prometheus reads it.

May import nothing of Ottla. Pure: no clock, no socket, no file.
Start with `table.py`, then `instruments.py`; the server puts the numbers together in `server/http/metrics.py`.
"""
