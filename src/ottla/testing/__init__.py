"""Test doubles that are public: users test with them too.

`disk.py` is a file system in memory that crashes, tears, fails and flips bits on request. May import every layer below
`cli`; nothing but tests and the command line imports this.
"""
