"""What produce requests need beside their handler (`handlers/records/produce.py`): waits for commits
(`waiting_appends.py`), transactions, permissions, refusals."""
