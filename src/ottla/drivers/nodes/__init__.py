"""Requests to other nodes (`node_client.py`), and how a node proves there who it is: TLS, SASL, Kerberos, tokens."""
