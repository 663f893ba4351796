"""What pages show: functions from a request to a dataclass, which a template renders and the API sends as JSON.

Offsets are texts: a browser's numbers end at 2^53. Moments are UTC, as `2026-01-05T10:00:00.123Z`. A part that could
not be read is empty or None, and `problems` of the answer says why.
"""
