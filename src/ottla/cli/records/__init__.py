"""`ottla produce` and `ottla consume`: records in and out, and their formats."""
