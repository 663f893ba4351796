"""What must hold: histories of clients (`history.py`, `transaction_history.py`) and invariants of nodes
(`invariants.py`)."""
