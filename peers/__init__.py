"""Other brokers, started on loopback to be compared with: the oracle of the tests and the other side of the benchmarks."""
