"""`ottla log dump`: what is in a log directory, and whether it is sound, read without a broker.

May import storage, protocol and what lies below; only `cli/app.py` imports it. The readers here trust nothing and share
no code with recovery, so that they can find its mistakes. Start with `command.py`.
"""
