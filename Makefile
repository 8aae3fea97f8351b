# Each target sets up what it needs in this folder; `make help` lists them.

SHELL := /bin/sh
PYTHON := .venv/bin/python
CODE := statestore meta compactor compute cli operator tests
EXTRA_CODE := $(wildcard benchmarks examples images scripts)

# A `pip install` underneath one target must not race with another under `make -j`.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: differential mutations help setup setup-no-java lint lint-ruff lint-types lint-imports format test test-all test-night test-quick e2e build-cluster spark-classes demo bench bench-meta bench-spark bench-compute bench-functions bench-changelog lock proto clean simulate

##@ Start here
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make TARGET" } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## Stream 336,776 flights through Spark into a store, then query it
	@$(PYTHON) examples/flights_demo.py

setup: ## Check Python and Java, then create .venv with the pinned packages
	@scripts/setup.sh

setup-no-java:
	@scripts/setup.sh --no-java

##@ Check
test: setup lint spark-classes ## Lint, then the everyday tests, in WORKERS=3 processes; what they leave out is named at the end
	@echo "Running the everyday tests"
	@$(PYTHON) -m pytest --everyday --numprocesses $(or $(WORKERS),3)

test-all: setup ## Lint, then every test: Kubernetes and programs that start their own Spark, too
	@# What only one core of the machine works on goes side by side.
	@$(MAKE) --no-print-directory lint & lint=$$!; \
		$(MAKE) --no-print-directory build-cluster spark-classes; built=$$?; wait $$lint && exit $$built
	@echo "Running all tests"
	@TUSSOCK_LONG_TESTS=1 $(PYTHON) -m pytest --numprocesses $(or $(WORKERS),3)

test-night: ## All tests, with DEPTH=10 times as many random histories, kills and batches of long streams
	@TUSSOCK_DEPTH=$(or $(DEPTH),10) $(MAKE) --no-print-directory test-all

test-quick: setup-no-java ## Tests that need neither Spark nor MinIO and are not slow
	@$(PYTHON) -m pytest -m "not spark and not minio and not slow"

e2e: setup-no-java build-cluster ## Tests on a Kubernetes node of our own (root on Linux, with Go), or on the cluster of KUBECONFIG
	@TUSSOCK_LONG_TESTS=1 TUSSOCK_DEPTH=2 $(PYTHON) -m pytest tests/e2e

spark-classes: setup
	@cd tests && ../$(PYTHON) -m support.spark.shared_classes

build-cluster: setup-no-java
	@cd tests && ../$(PYTHON) -m cluster build --where-possible

simulate: setup-no-java ## Live through SEEDS=1000 simulated histories of a cluster, or one SEED=123 with its trace
	@cd tests && ../$(PYTHON) -m simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000) --first $(or $(FIRST),1))

mutations: setup-no-java ## COUNT=100000 objects of stores with changed bytes, each given to what decodes it
	@cd tests && ../$(PYTHON) -m support.models.mutations --count $(or $(COUNT),100000)

differential: setup-no-java ## OPERATIONS=100000 random operations on stores, each answer compared with a plain dict
	@cd tests && ../$(PYTHON) -m support.models.differential --operations $(or $(OPERATIONS),100000) --first $(or $(FIRST),1)

lint: setup-no-java lint-ruff lint-types lint-imports ## Ruff, mypy and the one-way rule of imports

lint-ruff:
	@echo "Checking style with ruff"
	@$(PYTHON) -m ruff check --quiet $(CODE) $(EXTRA_CODE)
	@$(PYTHON) -m ruff format --check --quiet $(CODE) $(EXTRA_CODE)

lint-types:
	@echo "Checking types with mypy"
	@$(PYTHON) -m mypy

lint-imports:
	@echo "Checking that rooms import one way"
	@.venv/bin/lint-imports --no-logo

##@ Work on it
format: setup-no-java ## Format the code and mend what ruff can mend
	@$(PYTHON) -m ruff check --fix --quiet $(CODE) $(EXTRA_CODE) || true
	@$(PYTHON) -m ruff format $(CODE) $(EXTRA_CODE)

bench: setup ## Measure against RocksDB, SlateDB and Parquet; prints a table of ratios
	@$(PYTHON) benchmarks/run.py

bench-meta: setup-no-java ## Measure the meta service: commits, push, failover, compaction; needs MinIO
	@$(PYTHON) benchmarks/meta_bench.py

bench-spark: setup ## Measure Spark jobs: state, batches, joins; beside RocksDB and Parquet; needs MinIO
	@$(PYTHON) benchmarks/spark_bench.py

bench-compute: setup-no-java ## Measure transactions and procedures beside SQLite, recovery, and state beyond memory
	@$(PYTHON) benchmarks/compute_bench.py

bench-functions: setup-no-java ## Measure transactional functions: YCSB-T, travel, movie, TPC-C, skew, commits, recovery
	@$(PYTHON) benchmarks/functions_bench.py

bench-changelog: setup-no-java ## Measure changelog streams beside Bytewax, subscribers, and small pushes
	@$(PYTHON) benchmarks/changelog_bench.py

proto: setup-no-java ## Generate the code of the .proto files anew
	@$(PYTHON) -m grpc_tools.protoc -I meta --python_out=meta --pyi_out=meta meta/tussock/meta/rpc/meta.proto
	@$(PYTHON) -m grpc_tools.protoc -I compute --python_out=compute --pyi_out=compute compute/tussock/compute/service/rpc/application.proto

lock: setup-no-java ## Write requirements.lock anew from pyproject.toml
	@$(PYTHON) -m uv --version >/dev/null 2>&1 || $(PYTHON) -m pip install --quiet uv
	@$(PYTHON) -m uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --all-extras --group dev \
		--no-emit-package tussock --output-file requirements.lock $(LOCK_FLAGS)
	@images/lock.sh

clean: ## Remove .venv, caches and what the demo left
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist demo-store
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
