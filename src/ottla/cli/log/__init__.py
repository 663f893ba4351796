"""`ottla log`: what is in a log directory, whether it is sound, and its repair, without a broker.

May import storage, protocol and what lies below; only `cli/app.py` imports it. Readers trust nothing and share no code
with recovery but the scanner (`storage/recovery/scan.py`), so that they can find its bugs. Start with `command.py`.
"""
