"""What produce requests need beside their handler (`handlers/records/produce.py`): the short way of requests for one
partition (`produce_shortcut.py`), answers (`produce_answers.py`), waits for commits (`waiting_appends.py`),
transactions, permissions, refusals."""
