"""Classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and how a generation follows another."""
