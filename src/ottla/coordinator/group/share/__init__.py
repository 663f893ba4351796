"""Share groups (KIP-932) as their group coordinator knows them: who the members are, what each reads, and of which
partitions the share coordinator keeps the state. Start at `heartbeat.py`; `group.py` is what the records say.
"""
