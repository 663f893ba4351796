"""The record batch (`record_batch.py`), its codecs, and compiled loops over the records inside it."""
