"""Records of topics: how they are read, from brokers and from files, and the searches that are going on."""
