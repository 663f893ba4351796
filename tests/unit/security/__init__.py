"""The pure half of security."""
