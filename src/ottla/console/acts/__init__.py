"""What the console can change: a row of `table.py` for each act, made of `act.py`'s parts.

An act plans, from what the cluster has now, and runs the plan when the user has seen it. Pages, API, OpenAPI, the
tables of the docs and the tests are made of the rows. It imports the console's readers, and no view imports it.
"""
