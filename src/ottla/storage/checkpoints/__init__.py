"""The small text files of a log directory: offset checkpoints (`offset_checkpoint.py`), `meta.properties`."""
