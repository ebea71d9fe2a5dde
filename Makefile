# The index of what can be done here; `make help` prints it.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PY := .venv/bin/python
# With PYTHONDONTWRITEBYTECODE each of hundreds of processes would compile anew what has changed since the setup.
# What tests write lies in memory where there is room: thousands of small databases wait for a disk otherwise.
TEST_FILES := $(shell [ -w /dev/shm ] && [ "$$(df --output=avail /dev/shm | tail -n 1)" -gt 12000000 ] && ! findmnt -no OPTIONS /dev/shm | grep -q noexec && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
PYTEST := PYTHONDONTWRITEBYTECODE= TMPDIR=$(TEST_FILES) $(PY) -m pytest

.PHONY: help setup java classes postgres mariadb kafka redis jdbc browser stores demo test test-fast test-unit test-integration test-system test-airflow test-page screenshots lint format chaos soak formal ledger-storm try compat bench-pg bench-mysql bench-kafka bench-files bench-store bench-isolation bench-airflow bench-peers bench-ledger bench-page bench-many bench-database ui docs package lock clean

help: ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-18s %s\n", $$1, $$2 }'

.venv/.ready: requirements.lock pyproject.toml tests/services/venv.sh
	@tests/services/venv.sh
	@touch $@

setup: .venv/.ready ## Make .venv with every locked package

java:
	@tests/services/packages.sh java

postgres:
	@tests/services/packages.sh postgres

mariadb:
	@tests/services/packages.sh mariadb

kafka: java
	@tests/services/jars.sh kafka

redis:
	@tests/services/packages.sh redis

jdbc: java
	@tests/services/jars.sh jdbc

browser: setup
	@tests/services/packages.sh chromium
	@tests/services/browser.sh
	@tests/services/packages.sh npm
	@tests/services/npm.sh

stores:
	@tests/services/stores.sh

# Each of hundreds of Javas starts Spark a third faster with an archive of its classes; runs find it where users' runs do.
classes: setup java
	@AIRFLOW_HOME=$(CURDIR)/build/airflow $(PY) -m airflow_provider_ckpt.engines.class_archive_training

demo: setup java ## Replicate 336,776 flights under a real Airflow; writes build/demo/summary.json
	@$(PY) -m tests.system.demo

# With four processes, memory reached 19 of 24 GiB.
test: lint classes postgres mariadb java kafka redis jdbc browser stores ## Lint, then every test: unit, integration, real Airflow, crashes
	@$(PYTEST) --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 20

test-fast: lint postgres mariadb java kafka jdbc ## Lint, unit tests, each connector once, a run by command and one by DAG: under 5 minutes
	@$(PYTEST) -m fast --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 10

test-unit: setup ## Pure tests, in seconds
	@$(PYTEST) tests/unit

test-integration: setup postgres mariadb java kafka jdbc stores ## Tests against real PostgreSQL, Kafka, Spark and Delta
	@$(PYTEST) tests/integration

test-system: setup postgres java redis browser ## Tests under a real Airflow, crashes included
	@$(PYTEST) tests/system

test-airflow: setup postgres java browser ## What a person does in Airflow, deaths and restarts, recovery in a real browser
	@$(PYTEST) tests/system/airflow --durations 0

test-page: setup postgres java browser ## The page Replication: its API's guard, its stories in a real browser, both auth managers
	@AUTH_MANAGERS="simple fab" $(PYTEST) tests/system/page tests/system/airflow/test_page_stories.py --durations 0

screenshots: setup postgres java browser ## Take the documentation's pictures of Airflow's pages anew, into docs/img
	@SCREENSHOTS=$(CURDIR)/docs/img $(PYTEST) tests/system/airflow/test_dag_run_page.py tests/system/airflow/test_recovery_page.py tests/system/page/test_browser.py

lint: setup ## ruff, mypy --strict, layers, spelling
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-cache
	@.venv/bin/codespell

format: setup ## Let ruff put the code in order
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

chaos: setup postgres mariadb java kafka stores ## Strike 1,000 times at all pairs of connectors and kill 20 runs, in at most 90 minutes; writes build/chaos/summary.json
	@$(PY) -m tests.chaos.chaos

soak: setup postgres java ## 2,000 runs of ten pipelines on standing drivers, with kills of runs, workers and drivers; nothing is lost, doubled or grows; writes build/soak/summary.json
	@$(PY) -m tests.chaos.soak

formal: setup postgres java stores ## Prove it: the core searched, the protocol by TLC, mutants; writes build/formal/summary.json
	@$(PY) -m tests.formal

ledger-storm: setup postgres ## Random commands, SIGKILLs and stale epochs on one ledger; writes build/storm/summary.json
	@$(PY) -m tests.chaos.ledger_storm

compat: setup postgres java jdbc ## Part of the suite on other versions of Airflow, PySpark and Python; ENVIRONMENTS="oldest newest" and SMALL=1 choose; writes build/compat/summary.json
	@$(PY) -m tests.compat $(if $(SMALL),--small) $(ENVIRONMENTS)

try: setup postgres mariadb java kafka redis browser stores ## Proofs, storms and benchmarks in small, so that none stops working unseen
	@tests/services/jars.sh spark-kafka
	@tests/services/jars.sh mariadb-jdbc
	@tests/services/jars.sh s3a
	@$(PY) -m tests.small

bench-pg: setup postgres java ## A million rows PostgreSQL to PostgreSQL against psql and Spark JDBC; writes build/bench/pg_to_pg.json
	@$(PY) -m tests.benchmarks.pg_to_pg

bench-mysql: setup mariadb postgres java ## A million rows MariaDB to MariaDB against mariadb-dump and Spark JDBC; writes build/bench/mysql.json
	@tests/services/jars.sh mariadb-jdbc
	@$(PY) -m tests.benchmarks.mariadb

bench-kafka: setup postgres java kafka ## A million messages Kafka to Kafka, exactly once, against Spark's own connector; writes build/bench/kafka_to_kafka.json
	@tests/services/jars.sh spark-kafka
	@$(PY) -m tests.benchmarks.kafka_to_kafka

bench-files: setup java ## Many small batches against Structured Streaming, flights against Spark's JSON to Parquet; writes build/bench/files.json
	@$(PY) -m tests.benchmarks.files

bench-store: setup java stores ## Flights to Delta in an S3 store against a directory and Spark's s3a, requests, discovery; writes build/bench/store.json
	@tests/services/jars.sh s3a
	@$(PY) -m tests.benchmarks.store

bench-airflow: setup postgres java ## An empty run, cold and warm micro-runs under a real Airflow; writes build/bench/airflow.json
	@$(PY) -m tests.benchmarks.airflow

bench-peers: setup postgres java ## Whole loads by this package, Sling and dlt; writes build/bench/peers.json
	@$(PY) -m tests.benchmarks.peers

bench-ledger: setup postgres ## Settlements a second, with 10,000 and 10,000,000 receipts behind them; writes build/bench/ledger.json
	@$(PY) -m tests.benchmarks.ledger

bench-many: setup postgres java redis ## 300 files in a folder, 50 pipelines at once on each executor, 50 runs on one ledger; writes build/bench/many.json
	@$(PY) -m tests.benchmarks.many

bench-database: setup postgres java ## 1,000 tables of one declaration, by this package, Sling and dlt; writes build/bench/database.json
	@$(PY) -m tests.benchmarks.database

bench-page: setup postgres browser ## The page on a ledger of 300 pipelines and 10,000,000 receipts: answers, first paint, frames; writes build/bench/page.json
	@$(PY) -m tests.benchmarks.page

bench-isolation: setup postgres java ## A million clean rows with and without isolation of bad ones; writes build/bench/isolation.json
	@$(PY) -m tests.benchmarks.isolation

ui: ## Check and test the page's sources and build its bundle anew (needs Node 20 and npm; who only uses the package does not)
	@cd airflow_provider_ckpt/ui && npm ci --no-audit --no-fund --silent && npm run --silent schema && npm run --silent check \
		&& npm run --silent test && npm run --silent build

docs: setup ## Build the documentation into docs/_build/html
	@AIRFLOW_HOME=$(CURDIR)/build/docs $(PY) -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

package: setup ## Build the wheel and the source distribution into dist/, and check them
	@$(PY) -m build --no-isolation
	@$(PY) -m twine check --strict dist/*

lock: setup ## Write requirements.lock again: names, versions, hashes; and the lock files of make compat
	@"$$(command -v uv || echo .venv/bin/uv)" pip compile pyproject.toml --universal --python-version 3.11 --extra all --extra openlineage --group dev --upgrade --quiet \
		--constraint tests/services/lock-constraints.txt --generate-hashes --no-emit-index-url --no-header --no-annotate --output-file requirements.lock
	@"$$(command -v uv || echo .venv/bin/uv)" pip compile tests/benchmarks/peers.in --universal --python-version 3.11 --upgrade --quiet \
		--generate-hashes --no-emit-index-url --no-header --no-annotate --output-file tests/benchmarks/peers.lock
	@$(PY) -m tests.compat.install

clean: ## Remove what was built, .venv excepted
	@rm -rf build dist docs/_build spark-warehouse .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
