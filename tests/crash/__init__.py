"""Kill -9 a loaded node again and again, and check that it kept its word.

`python -m tests.crash.run --rounds 300` by hand, a few rounds in `test_crash.py`. `producers.py` makes the load and
remembers what was acknowledged, `history.py` reads everything back and compares.
"""
