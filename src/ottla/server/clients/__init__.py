"""Quotas of clients (`quotas.py`) and the metrics that they push (`telemetry.py`)."""
