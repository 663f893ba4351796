"""Consumer groups (KIP-848): the coordinator assigns, members follow at their own pace.

`heartbeat.py` is where a member's request goes through; `group.py` is what a group is and changes by replay only;
`migration.py` turns groups of the classic protocol into these and back.
"""
