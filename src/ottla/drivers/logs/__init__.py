"""Work on logs in the background: compaction (`log_cleaner.py`), moves between directories (`log_mover.py`), checks for
damage (`scrubber.py`)."""
