"""Logins (`sasl_authenticate.py`), ACLs, delegation tokens and SCRAM users."""
