"""Settings of brokers, topics, groups and clients, and quotas of clients."""
