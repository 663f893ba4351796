"""`ottla share`: share groups, their dead letters, and what puts these back."""
