"""The active controller (`active_controller.py`), and the way to it from a broker (`controller_channel.py`)."""
