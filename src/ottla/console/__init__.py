"""A web page that shows a cluster: `ottla console`, a process of its own beside the brokers, of any Kafka.

`server.py` runs it, `app.py` answers requests from the table in `routes.py`, `brokers.py` asks the brokers as the user
who logged in. A page and its JSON are the same data: a dataclass that a function of `views` returns.
"""
