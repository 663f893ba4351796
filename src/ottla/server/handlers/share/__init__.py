"""Share groups: members, deliveries (`share_fetch.py`), offsets, and the state that the share coordinator keeps
(KIP-932)."""
