"""A cluster with ZooKeeper becomes one of Ottla, and goes back."""
