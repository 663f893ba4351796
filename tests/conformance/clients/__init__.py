"""The client matrix: the same round with clients in Go, JavaScript, Rust, Python and Java.

Each program creates a topic, writes with every codec it has, reads in a group, commits, joins again, lists offsets,
deletes a topic, and prints one line of JSON; `test_rounds.py` checks it, `build.py` builds it.
The programs import nothing of Ottla.
"""
