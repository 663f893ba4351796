"""Shared by all tests: a real Apache Kafka to compare with, and that injected faults happen."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import costs, message_keys, order, orphans, skips, suite
from tests import oracle as oracle_of_the_run
from tests.conformance import compatibility
from tools import compiled

_CONTROLLER = "PYTEST_CONTROLLER_PID"

# kafka-python's threads go on for a while after a test: keep what they log out of the records of later tests.
logging.getLogger("kafka").propagate = False

# A machine may be slow: no example has a deadline (200 ms otherwise), no drawing of examples is too slow.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(compatibility)  # here, so that its options are known
    pluginmanager.register(skips)
    pluginmanager.register(costs)
    pluginmanager.register(order)
    pluginmanager.register(orphans)
    pluginmanager.register(message_keys)


def pytest_configure(config: pytest.Config) -> None:
    _leave_as_it_is(config, "ottla", "pyspark_ottla")
    if not hasattr(config, "workerinput"):
        if not os.environ.get("OTTLA_INTERPRETED") and (old := compiled.stale()):
            pytest.exit(f"run `make setup`: compiled before the last change were {', '.join(old)}", 4)
        if failed := os.environ.pop(suite.FAILED, None):  # workers, and runs that tests start, have none
            config.pluginmanager.register(suite.Failures(failed))
        os.environ[_CONTROLLER] = str(os.getpid())  # workers of xdist inherit it
        # A shell starts background jobs with SIGINT ignored, nohup with SIGHUP; what the tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python's garbage collector from the thousands of tests and their modules, which it walks for a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _leave_as_it_is(config: pytest.Config, *packages: str) -> None:
    """Keeps pytest from rewriting the assertions of packages that have a plugin of pytest's.

    Nodes import while their threads run, and `ast.parse` of Python 3.11.2 fails where two threads are in it
    (python/cpython#106905).
    """
    hook = config.pluginmanager.rewrite_hook
    names = getattr(hook, "_must_rewrite", set())
    names.difference_update(packages)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    """Address of an Apache Kafka: the one at OTTLA_ORACLE, or the run's own, started for the first test that asks."""
    external = os.environ.get("OTTLA_ORACLE")
    if external:
        return external
    if shutil.which("java") is None:
        pytest.skip("no Java here to run Apache Kafka with")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(request.config, "workerinput") else base
    return oracle_of_the_run.address(shared / "oracle", int(os.environ[_CONTROLLER]))


@pytest.fixture(autouse=True)
def injected_faults_strike() -> Iterator[None]:
    """Fails a test whose faults never struck. It has passed by then, but for another reason than it says."""
    if "ottla.testing.disk" not in sys.modules:
        yield
        return
    from tests import faults

    with faults.watch() as injected:
        yield
    assert injected.never_struck() == []
