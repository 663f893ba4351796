"""Runs the tests and the example that a checkout of testcontainers-python has for Kafka, with Ottla's classes.

    git clone --branch testcontainers-v4.15.0 https://github.com/testcontainers/testcontainers-python
    python -m tests.conformance.embedding.testcontainers_checkout testcontainers-python

The package on PyPI leaves them out. Docker is not needed: its networks are replaced by objects that do nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PARTS = (
    "tests/community/kafka/test_kafka.py",
    "tests/community/kafka/test_redpanda.py",
    "docs/modules/kafka_example.py",
)
SHIM = """
import sys
from contextlib import nullcontext

import testcontainers.community
import testcontainers.core.network

import ottla.testing.testcontainers as ours

testcontainers.community.kafka = ours
sys.modules["testcontainers.community.kafka"] = sys.modules["testcontainers.kafka"] = ours
testcontainers.core.network.Network = nullcontext
"""


def main(checkout: Path) -> int:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for part in PARTS:
            shutil.copy(checkout / part, directory)
        (directory / "conftest.py").write_text(SHIM)
        tests = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"], cwd=directory)
        code = SHIM + "import kafka_example; kafka_example.basic_example()"
        example = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True)
        print(example.stdout, example.stderr)
        received = example.stdout.count("Received message from")
        return tests.returncode or example.returncode or int(received != 2)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
