"""Listening sockets (`listener.py`), how they come to be (`listening.py`), and what they offer: TLS, logins."""
