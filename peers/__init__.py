"""Other brokers on loopback: the oracle of the tests and the other side of the benchmarks."""
