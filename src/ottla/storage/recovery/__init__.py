"""What a start does with a log directory: loads the logs (`directory_loader.py`), recovers after a crash
(`segment_recovery.py`), and what `ottla log repair` mends (`repair.py`)."""
