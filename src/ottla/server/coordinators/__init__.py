"""Common parts of the handlers of groups, share groups and transactions; requests that repeat."""
