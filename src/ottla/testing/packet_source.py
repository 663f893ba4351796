"""Where a node of a `Cluster` connects from, so that a packet says who sent it. Standard library only."""


def source(node_id: int) -> str:
    """An address of loopback, of the node's own."""
    return f"127.0.{1 + node_id // 250}.{1 + node_id % 250}"
