"""Producer ids and transactions. Start at `init_producer_id.py`; `end_txn.py` ends one."""
