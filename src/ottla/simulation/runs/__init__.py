"""The kinds of runs that a seed can play: `single.py` and `quorum.py` first."""
