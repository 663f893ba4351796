"""Small loops that feed the pure cores: they own files and timers and do what the cores' effects ask.

May import everything below `server`. No decision is taken here.
Start at `metadata/metadata_services.py`, which names the four parts that metadata has: the quorum node, the active
controller, the publisher of images and the broker's life; the other drivers follow the images.
"""
