"""Settings: one table with every name, type, default, range and update mode, and what a node makes of it.

The names and defaults are those of Apache Kafka 4.4. May import `model` and `errors` only; pure: who starts a node
reads the properties file and looks up the host's name. Start with `setting.py` (what a setting is), then
`definitions.py` (the table) and `server.py` (what a node runs with). `python -m tools.configuration_page`
writes docs/reference/settings.md from the table.
"""
