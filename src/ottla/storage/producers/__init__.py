"""What a partition knows of the producers that write to it: `producer_state.py` (Kafka's `ProducerStateManager`)."""
