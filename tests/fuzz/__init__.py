"""A fuzzer that knows the wire: requests drawn from the schemas, made wrong somewhere, sent to a real node.

`tree.py` holds a request as a tree of values, `values.py` draws one, `mutations.py` and `batches.py` make it wrong,
`clients.py` sends it and judges what comes back, `run.py` is the node under attack and what must hold of it. `make
test` runs some seconds of it; by hand: `python -m tests.fuzz --seconds 3600 --seed 7`.
"""
