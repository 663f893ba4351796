"""What users of a console may see and do beyond the cluster's ACLs, and how they log in at an identity provider.

Start with `roles.py` (who may what), `provider.py` (one identity provider) and `logins.py` (its routes); `trail.py`
keeps the audit log.
"""
