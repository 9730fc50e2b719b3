# The commands a person needs. CI calls the same ones.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
# Processes that share the tests, beside each other. A part of a live test's time is waiting, so
# three of them keep two cores at work; a unit test has nothing to wait for.
TESTERS ?= 3
UNIT_TESTERS ?= 2
# More words for pytest, such as --ignore=tests/unit behind `make check`.
TESTS   ?=
READY   = $(VENV)/.ready
# Of what pip says: how far it is, every twenty packages, and what went wrong.
SAY     = /^Collecting/ && ++n % 20 == 0 {print "  found " n " packages …"; fflush()} \
          /^Installing/ {print "  unpacking " n " packages …"; fflush()} \
          /ERROR|error:|WARNING: Retrying/
# Between these lines, for as long as the recipe's shell lives: pip unpacks without a word.
TICK    = while sleep 20 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do echo "  still at it …"; done;
DEV     = $(VENV)/.dev

.PHONY: help demo down samples zoo test test-deps check protocol seeded-bugs faults sick-gpus upgrade image replicas bench terminal \
  public-tables estimate-targets docs wheel lock clean
help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "headway needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": name another one, such as make demo PYTHON=python3.12")'
	@echo "installing what headway needs into $(VENV) (once; a minute or two) …"
	@$(PYTHON) -m venv $(VENV)
	@rm -f $(VENV)/.failed; { $(TICK) } & { $(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes \
	  -r requirements.lock || touch $(VENV)/.failed; } 2>&1 | awk '$(SAY)'; kill $$!; test ! -e $(VENV)/.failed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): $(READY) requirements-dev.lock requirements-prefect.lock requirements-ray.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
	  --upgrade --target $(VENV)/newest-prefect -r requirements-prefect.lock
	$(PYTHON) -m venv $(VENV)/ray
	$(VENV)/ray/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-ray.lock \
	  || echo "no Ray for this Python: the tests that need one are skipped"
	@touch $@

demo: $(READY)   ## bring up a site on this machine, train the sample, show the summary
	@$(BIN)/headway demo

down: $(READY)   ## stop the site that `make demo` started
	@$(BIN)/headway down

samples: $(READY) ## every sample on the site that is up here, on the CPU; loads gigabytes of packages
	@$(BIN)/python -m samples.try_all $(SAMPLES_SET)

test-deps: $(DEV) ## install what the tests need from the system (root on Debian)
	@PYTHON=$(BIN)/python sh tests/install-system-deps.sh

test: $(DEV)     ## every test; what this machine lacks is skipped with its reason
	$(BIN)/python -m pytest -n $(TESTERS) $(TESTS)

check: $(DEV)    ## lint, types, import contracts and the unit tests: under a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry headway flows blocks samples
	$(BIN)/python -m pytest -q -n $(UNIT_TESTERS) tests/unit

protocol: $(DEV) ## every state of the lease protocol: ten minutes; PROTOCOL=--full: an hour, 15 GB
	$(BIN)/python -m tests.protocol $(PROTOCOL)

seeded-bugs: $(DEV) ## put some forty bugs into copies of the code: which test finds each
	$(BIN)/python -m tests.seeded_bugs

faults: $(DEV)   ## what a site bears: kills, lost answers, frozen nodes; FAULTS=--full: hours
	$(BIN)/python -m pytest -m long
	$(BIN)/python benchmarks/faults $(FAULTS)

sick-gpus: $(DEV) ## GPUs of NVIDIA's imitation fall sick while a site uses them: a quarter of an hour
	$(BIN)/python -m pytest -m long tests/faults/test_sick_gpus.py

upgrade: $(DEV)  ## a site of an early 0.2 is brought to this code while runs go on, and back; two minutes
	$(BIN)/python -m pytest -m long tests/faults/test_upgrade.py

image: $(DEV)    ## compose runs a site of the image, systemd another and a node; ten minutes
	@PYTHON=$(BIN)/python sh tests/install-system-deps.sh debootstrap docker-compose
	$(BIN)/python -m pytest -m long tests/faults/test_image.py tests/faults/test_install.py

replicas: $(DEV) ## two API processes, services and a Redis: each dies while runs come and go
	@PYTHON=$(BIN)/python sh tests/install-system-deps.sh redis-server haproxy
	$(BIN)/python -m pytest -m long -s tests/faults/test_replicas.py

bench: $(DEV)    ## beside a stock Prefect worker; a long line; short jobs over four nodes
	$(BIN)/python benchmarks/submit_latency.py
	$(BIN)/python benchmarks/decisions.py
	$(BIN)/python benchmarks/short_jobs.py

terminal: $(DEV) ## record the terminal of the README anew: docs/terminal.svg
	$(BIN)/python benchmarks/terminal.py

pictures: $(DEV) ## take the pictures of docs/page.md anew
	$(BIN)/python benchmarks/pictures.py

zoo: $(DEV)      ## public programs as they are, on the site that is up here (benchmarks/zoo.py); hours
	$(BIN)/python benchmarks/zoo.py $(ZOO)

public-tables: $(READY) ## public measurements as traces, and how well they are told (TABLES=--part=source); an hour
	PYTHONPATH=. $(BIN)/python benchmarks/public_tables.py $(TABLES)

estimate-targets: $(READY) ## what the estimators reach beside what they are to; a quarter of an hour of a core
	PYTHONPATH=. $(BIN)/python benchmarks/estimate_targets.py $(TABLES)

docs: $(DEV)     ## the pages of docs/ as a site in build/docs; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(READY)  ## build dist/headway-….whl, which needs no clone where it is installed
	$(BIN)/python -m hatchling build -t wheel

lock:            ## resolve pyproject.toml again into the hashed lock files
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	  --extra plots -o requirements.lock pyproject.toml requirements-build.in
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	  --extra plots --extra parquet --extra s3 --extra gs --extra sftp --extra redis --extra psij --extra submitit --extra hydra --extra optuna --extra ssh --extra tensorboard --extra dev --override requirements-overrides.in -c requirements.lock -o requirements-dev.lock pyproject.toml requirements-build.in
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	  --no-deps -o requirements-prefect.lock requirements-prefect.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  -o requirements-ray.lock requirements-ray.in

clean:
	rm -rf $(VENV) dist
