"""What is measured of brokers: each module registers its tables (`bench/tables.py`)."""
