# Everything is set up by what needs it: `make demo` or `make test` in a fresh clone is enough.
# PYTHON chooses the interpreter, VENV the environment, PYTEST_ARGS goes to pytest.
# AIOKAFKA_NO_EXTENSIONS=1 runs any target in pure Python.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
PYTEST_ARGS ?=
# Processes that share out the tests, a file at a time. They wait more than they work.
WORKERS ?= 3
TOGETHER := -n $(WORKERS) --dist loadscope --no-loadscope-reorder
# What test-unit runs.
UNIT_TESTS ?= tests
VERSIONS ?= 3.10 3.11 3.12 3.13 $(shell sh tests/find_python.sh 3.14 >/dev/null 2>&1 && echo 3.14)
BOOTSTRAP ?=
# Where tests get a real Kafka from: maven (Java and Apache's jars), docker, docker:VERSION, HOST:PORT.
KAFKA ?= maven
MUTATIONS ?= 10000000
SEEDS ?= 1000
MINUTES ?=
SEED ?=
WORKLOAD ?=
DEMO ?=
FAULTS ?= suite
export PIP_NO_WARN_SCRIPT_LOCATION = 1

# What the extensions are built from: any of it newer than the stamp means to install again.
SOURCES := pyproject.toml $(wildcard setup.py) \
	$(foreach pxd,$(shell find aiokafka -name '*.pxd'),$(pxd) $(wildcard $(pxd:.pxd=.py)))

# What the codecs are generated from; this takes a second.
MESSAGES := tools/generate_codecs.py $(wildcard aiokafka/protocol/*.py aiokafka/protocol/messages/*.py)
CODECS := aiokafka/protocol/_generated/__init__.py

# The stamp is of one form: going from pure to compiled builds the extensions.
FORM := $(if $(AIOKAFKA_NO_EXTENSIONS),pure,compiled)
LIBRARY := $(VENV)/.library-$(FORM)
# Compiling takes minutes. `make demo` runs the checkout in pure Python, with its dependencies only,
# unless the library is installed or the extensions are required.
TO_DEMO := $(if $(REQUIRE_EXTENSIONS)$(wildcard $(LIBRARY)),$(LIBRARY),$(VENV)/.dependencies)

WHICH_MODE = import aiokafka.record.batch as b; \
	print("aiokafka runs", "in pure Python; \"make compile\" makes it several times faster." \
	if b.__file__.endswith(".py") else "compiled.")

# Spark's JVM in tests: most of what it compiles with care is used once.
SPARK_SUBMIT_ARGS := --driver-java-options "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" pyspark-shell
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
# The longest first, for two processes share them out.
SPARK_TESTS := tests/integration/test_spark_kills.py \
	$(filter-out %_kills.py,$(sort $(wildcard tests/integration/test_spark*.py))) tests/spark

.PHONY: help demo compile install-lines check pictures test test-unit test-all test-long test-spark test-dependents simulate spark-demo java fuzz mutants traces figures options lint format docs bench bench-spark broker dist clean
.DELETE_ON_ERROR:

help:
	@echo "To try it (needs Python 3.10 or later only):"
	@echo "  make demo               count the words of text files through Kafka; show records"
	@echo "  DEMO=orders make demo   a page on which you kill members of a group and stop brokers"
	@echo "  make compile            build the extensions: several times faster, takes minutes"
	@echo "  make docs               the manual, in docs/_build/html/index.html"
	@echo "  make broker             a real Kafka in the foreground (Java 17, Maven);"
	@echo "                          ARGS='--version 2.8.2 --nodes 1'"
	@echo "  make spark-demo         count words per minute with Spark (Java 17, PySpark of 450 MB)"
	@echo
	@echo "To check a change (test: 400 MB in .venv, half an hour; Java 17 and Maven for brokers):"
	@echo "  make check              everything that a change has to pass: lint, tests, docs, packages"
	@echo "  make lint               rules of the code, ruff, mypy and spelling"
	@echo "  make test               every test; KAFKA=docker: brokers from a docker image, no Java"
	@echo "  make test-unit          the tests that need no broker"
	@echo "  make test-all           the same on Python $(VERSIONS), and in pure Python"
	@echo "  make test-long          the long forms: a million records a codec, every broker version, kills"
	@echo "  make test-spark         the Spark source and sink in PySpark"
	@echo "  make test-dependents    FastStream, Faust, taskiq and tracers, as released, on this library"
	@echo "  make dist               sdist and wheel, each tried in a clean environment"
	@echo "  make install-lines      run every install command of the manual in a clean environment"
	@echo
	@echo "To develop:"
	@echo "  make format             sort imports and format the code"
	@echo "  make options            write the options into docstrings and types, after a change of one"
	@echo "  make figures            the shape of the code, and the modules that each operation passes"
	@echo "  make pictures           draw the pictures of the manual from docs/pictures/*.txt"
	@echo "  make simulate           programs, a cluster and faults by the seed"
	@echo "                          (SEEDS=1000, MINUTES=, SEED=, WORKLOAD=)"
	@echo "  make traces             run simulations twice, with other hashes; both must be alike"
	@echo "  make fuzz               read damaged record sets (MUTATIONS=10000000)"
	@echo "  make mutants            plant faults, see what notices (FAULTS=suite, strangers, simulation)"
	@echo "  make bench              compare with the other clients (ROWS=... ROUNDS=...)"
	@echo "  make bench-spark        compare in Spark with its own Kafka source (ROWS=... ROUNDS=...)"
	@echo "  make clean              remove what the others made"
	@echo
	@echo "AIOKAFKA_NO_EXTENSIONS=1 runs any target in pure Python; PYTHON=python3.13 chooses another."

# Runs a command and prints how long it took.
timed = @start=$$(date +%s); $(2) || exit 1; echo "$(1): $$(($$(date +%s) - start)) s"

# -- environments

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "aiokafka needs Python 3.10 or later: make PYTHON=/path/to/python3 ..."; exit 1; }
	@echo "Creating the environment $(VENV)"
	$(call timed,environment,$(PYTHON) -m venv --without-pip $(VENV))
	@touch $@

# Installing pip takes ten seconds on a busy machine, so `make demo` does without: the pip of PYTHON
# installs into the environment. Dependency groups need pip 25.1.
$(VENV)/.pip: $(VENV)/.python
	@$(BIN)/python -m ensurepip --default-pip >$(VENV)/ensurepip.log 2>&1 || { cat $(VENV)/ensurepip.log; exit 1; }
	@$(PIP) install -q --upgrade pip
	@touch $@

$(VENV)/.dependencies: $(VENV)/.python pyproject.toml
	@echo "Installing the dependencies of aiokafka into $(VENV)"
	$(call timed,dependencies,$(BIN)/python tools/install.py --dependencies)
	@touch $@

$(LIBRARY): $(VENV)/.pip $(SOURCES) $(CODECS)
	@echo "Installing aiokafka ($(FORM)) into $(VENV)"
	@$(BIN)/python tools/install.py
	@touch $@

$(CODECS): $(MESSAGES) | $(VENV)/.python
	@$(BIN)/python tools/generate_codecs.py
	@touch $@

$(VENV)/.tests: $(VENV)/.pip pyproject.toml
	$(PIP) install -q --group test
	@# No wheels of gssapi on Linux, so only where it can be built; -O0 because that is for tests.
	@if command -v krb5-config >/dev/null; then CFLAGS="-O0 -g0" $(PIP) install -q --group kerberos; fi
	@touch $@

$(VENV)/.docker: $(VENV)/.pip pyproject.toml
	$(PIP) install -q --group docker
	@touch $@

$(VENV)/.spark: $(VENV)/.pip pyproject.toml
	@echo "Installing PySpark, of 450 MB"
	$(PIP) install -q --group spark
	@touch $@

java:
	@found=$$("$(JAVA)" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	if [ "$${found:-0}" -lt 17 ]; then \
		echo "Spark needs Java 17 or later, but $(JAVA) is $${found:-not there}: install it, or set JAVA_HOME"; \
		exit 1; \
	fi

$(VENV)/.lint: $(VENV)/.pip pyproject.toml
	$(PIP) install -q --group lint
	@touch $@

$(VENV)/.docs: $(VENV)/.pip pyproject.toml
	$(PIP) install -q --group docs
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	$(call timed,server,$(BIN)/python tools/install.py --group demo)
	@touch $@

$(VENV)/.dist: $(VENV)/.pip pyproject.toml
	$(PIP) install -q --group dist
	@touch $@

# -- to use

# When it began, in seconds since 1970: the demo prints how long it was to the first record.
BEGAN := $(if $(filter demo,$(MAKECMDGOALS)),$(shell $(PYTHON) -c 'import time; print(time.time())'))

demo: $(TO_DEMO) $(CODECS) $(if $(filter orders,$(DEMO)),$(VENV)/.demo)
	@$(BIN)/python -c '$(WHICH_MODE)'
	@PYTHONPATH='$(CURDIR)' BEGAN='$(BEGAN)' BOOTSTRAP='$(BOOTSTRAP)' $(BIN)/python examples/$(or $(DEMO),demo.py) $(ARGS)

compile: $(LIBRARY)
	@$(BIN)/python -c '$(WHICH_MODE)'

# Quiet but for Spark's bar of progress.
spark-demo: java $(LIBRARY) $(VENV)/.spark
	@SPARK_CONF_DIR=$${SPARK_CONF_DIR:-$(abspath examples/spark/conf)} BOOTSTRAP='$(BOOTSTRAP)' \
		$(BIN)/python examples/spark/minute_counts.py $(ARGS)

broker: $(VENV)/.python
	@$(BIN)/python -m tests.kafka $(ARGS)

# -- to check

# What CI runs. As root on Debian it installs Java, Maven and Kerberos if they are missing.
check:
	@PYTHON='$(PYTHON)' bash .ci/run

test: $(LIBRARY) $(VENV)/.tests $(if $(filter docker%,$(KAFKA)),$(VENV)/.docker)
	@$(BIN)/python -c '$(WHICH_MODE)'
	$(PYTEST) $(TOGETHER) -m "not spark" --kafka $(KAFKA) $(PYTEST_ARGS)

test-unit: $(LIBRARY) $(VENV)/.tests
	@$(BIN)/python -c '$(WHICH_MODE)'
	$(PYTEST) $(TOGETHER) -m "not integration" $(UNIT_TESTS) $(PYTEST_ARGS)

test-all:
	@set -e; for version in $(VERSIONS); do \
		python=$$(sh tests/find_python.sh $$version); \
		echo "== Python $$version, compiled"; \
		$(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-$$version; \
		echo "== Python $$version, pure"; \
		AIOKAFKA_NO_EXTENSIONS=1 $(MAKE) --no-print-directory test-unit PYTHON=$$python VENV=.venv-$$version; \
	done

test-long: $(LIBRARY) $(VENV)/.tests $(if $(filter docker%,$(KAFKA)),$(VENV)/.docker)
	AIOKAFKA_LONG=1 $(PYTEST) -m long --kafka $(KAFKA) $(PYTEST_ARGS)

fuzz: $(LIBRARY) $(VENV)/.tests
	$(BIN)/python -m tests.record.fuzz --mutations $(MUTATIONS)

simulate: $(LIBRARY) $(VENV)/.tests
	PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(SEED),--seed $(SEED)) $(foreach kind,$(WORKLOAD),--workload $(kind)) $(ARGS)

mutants: $(LIBRARY) $(VENV)/.tests
	$(BIN)/python -m tests.mutants $(FAULTS) $(ARGS)

traces: $(LIBRARY) $(VENV)/.tests
	$(BIN)/python -m tests.testing.traces $(SEEDS) --apart

figures: $(LIBRARY)
	@$(BIN)/python -m tests.house.figures $(ARGS)
	@$(BIN)/python -m tests.house.journeys

test-spark: java $(LIBRARY) $(VENV)/.tests $(VENV)/.spark
	AIOKAFKA_SPARK=required PYSPARK_SUBMIT_ARGS='$(SPARK_SUBMIT_ARGS)' \
		$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder $(SPARK_TESTS) $(PYTEST_ARGS)

test-dependents: $(LIBRARY) $(VENV)/.tests
	$(BIN)/python -m tests.dependents.environments
	AIOKAFKA_DEPENDENTS=1 $(PYTEST) tests/dependents $(PYTEST_ARGS)

# Without ruff's cache: how an import is sorted may depend on files that have come since.
lint: $(VENV)/.lint
	$(BIN)/python -m tests.house.rules
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/codespell -L unsecure,aks,asend --skip "*.svg,*.so,*.c,*.json,docs/_build" docs examples aiokafka *.rst *.md
	$(BIN)/mypy

options: $(LIBRARY)
	$(BIN)/python -m tests.house.options

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(LIBRARY) $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

pictures: $(VENV)/.python
	$(BIN)/python docs/pictures/draw.py

bench: $(LIBRARY) $(VENV)/.tests
	$(BIN)/python -m benchmarks $(if $(ROWS),--rows "$(ROWS)") $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

bench-spark: java $(LIBRARY) $(VENV)/.tests $(VENV)/.spark
	$(BIN)/python -m benchmarks.spark $(if $(ROWS),--rows "$(ROWS)") $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

dist: $(VENV)/.dist
	rm -rf build dist
	$(BIN)/python -m build -o dist .
	$(BIN)/python tests/try_dist.py dist
	@echo "To install the wheel elsewhere, copy the folder dist and run:"
	@$(BIN)/python -c 'from tools.install_lines import console; print(*console()[1:])'

install-lines: $(VENV)/.pip
	$(BIN)/python -m tests.try_install $(ARGS)

clean:
	rm -rf .venv .venv-* build dist docs/_build benchmarks/.work .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find aiokafka \( -name '*.so' -o -name '*.c' \) -delete
