"""SQL over topics by DuckDB: topics as its tables, and queries that run in a process of their own."""
