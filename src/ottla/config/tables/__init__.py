"""The rows of the table of settings, one module per part of a broker; data only.

May import `config.setting` and `config.checks`. `config/definitions.py` puts the parts together and finds a setting
by name.
"""
