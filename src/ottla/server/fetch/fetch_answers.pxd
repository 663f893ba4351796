# C types for `fetch_answers.py`; see there.
