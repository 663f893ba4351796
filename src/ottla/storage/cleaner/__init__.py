"""Compaction: which log is next and how far (`cleaner_manager.py`), what stays of its batches (`cleaner_filter.py`)."""
