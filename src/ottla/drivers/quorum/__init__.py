"""This node's replica of the metadata log (`quorum_node.py`): files, fsyncs, votes and fetches around
`ottla.quorum`."""
