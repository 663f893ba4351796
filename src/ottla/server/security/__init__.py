"""Logins (`authentication.py`), permissions (`authorization.py`) and the audit log of a node (`audit.py`)."""
