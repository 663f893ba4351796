"""The transaction coordinator of one partition of `__transaction_state`, as a pure, replayable state machine.

Nothing but replaying a record changes what is known of a transactional id. Start at `transaction.py` (states and what
is logged), then `shard.py` (requests in, effects out). `drivers/coordinators/transaction_coordinator.py` feeds it.
"""
