"""Small loops that feed the pure cores: they own files and timers and do what the cores' effects ask.

May import everything below `server`. No decision is taken here.
Start at `controller.py`: it owns the metadata log and publishes images; the others follow its images.
"""
