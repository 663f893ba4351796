"""How sides are started, loaded, warmed, measured and compared: `rounds.py` first."""
