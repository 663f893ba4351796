"""The agent of log aggregation: follows files and sends their lines to a topic, once each or at least once.

`agent.py` is the loop, `finder.py` finds files, `relations.py` says which is which, `follow.py` notices rotation
(`neighbours.py`: what is new beside a file; `copies.py`: what is not to be read twice), `files.py` reads one file,
`lines.py` splits bytes, `positions.py` has how far each was sent, `sinks.py` writes records and positions. May import
`ottla.client` and what is below; `ottla.cli.tail` is its command.
"""
