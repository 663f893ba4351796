"""The main job on real input: `make demo`, or `.venv/bin/python -m demo` once `demo/setup.sh` has run.

A node, feeders of this machine's own data, a consumer group that follows them, and Spark's own Kafka connector that
reads the same topics as a stream. Uses Ottla only as a user would: its command line and Kafka clients.
Start with `__main__.py`; each of the other modules is one actor.
"""
