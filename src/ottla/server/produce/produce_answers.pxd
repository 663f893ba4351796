# C types for `produce_answers.py`; see there.
