"""Permissions of clients, and how clients prove who they are.

Pure: the time and random bytes are arguments. May import `protocol` and what lies below it. Start at `acls.py` (the
words of ACLs), then `authorizer.py` (who may do what).
"""
