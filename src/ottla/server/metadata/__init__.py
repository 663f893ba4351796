"""What clients on a listener see of the cluster (`metadata_view.py`), topics that are created for them, forwarding."""
