# The commands of this project. `make` alone explains them.
#
# Everything Python is installed into .venv/ from requirements.lock, by hash; `make lock` renews it.
# What lands later is found by convention:
#   make test              tests/**/test_*.py but those marked `more` or `slow`, and examples in docstrings
#   make test-more         those marked `more`: clusters, every step, wheels, large samples
#   make chaos             tests/faults, the long versions too (--slow); SEEDS=a-b: random schedules
#   make fuzz              tests/properties and tests marked `fuzz`, many random examples (--slow)
#   make test-statistical  tests/statistical, the long versions too (--slow)
#   make bench             every module of bench/ in turn, and docs/benchmarks.md; BENCH="NAME ..." picks some

# The first that is new enough and can make environments: Debian packs ensurepip separately, with venv.
PYTHON ?= $(firstword $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p; done))
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# On a terminal the long step shows what it does; a log gets a line for each step.
QUIET := $$(test -t 2 || echo --quiet)
# Three processes for two cores: tests of servers mostly wait. JOBS=0 runs everything in one.
JOBS ?= 3
ARGS ?=
# Where quick tests are: collecting the others alone takes longer than running these.
FAST := tests/agents tests/blender tests/blendstream tests/docs tests/evaluation \
	tests/localclient tests/mutants tests/streams src/blendstream \
	--ignore tests/agents/gateway/test_api_fuzz.py -p no:schemathesis

.PHONY: help setup demo test test-more test-fast coverage check format bench chaos soak mutants fuzz test-statistical front-page docs lock packages clean

help:  ## this list
	@echo "usage: make TARGET [ARGS='more for pytest or the demo'] [JOBS=0 for one process]"; echo
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  %-18s%s\n", $$1, $$2 }'

setup: $(INSTALLED)  ## install everything into .venv/

$(INSTALLED): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with its module venv is needed and was not found on the PATH." \
	  "Install one (Debian: apt-get install python3-venv), or name it: make PYTHON=/path/to/python"; exit 1; }
	@echo "installing into $(VENV)/ with $(PYTHON): making the environment ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@sed -n '/^uv==/,/^    # via/p' requirements.lock > $(VENV)/uv.txt
	@$(PIP) --require-hashes -r $(VENV)/uv.txt
	@echo "installing $$(grep -c == requirements.lock) packages of requirements.lock, by hash ..."
	@# uv is quicker with a lock this long; where it cannot reach the index, pip may.
	@UV_SYSTEM_CERTS=true $(BIN)/uv pip install $(QUIET) --python $(BIN)/python --require-hashes -r requirements.lock \
	  || $(PIP) --no-deps --require-hashes -r requirements.lock
	@echo "installing blendstream itself ..."
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# Without Maven, and without the right to install it, the demo says so and goes on without Kafka.
demo: setup  ## see it run, on simulated people, until Ctrl-C; ARGS='--epochs 3' ends by itself
	@deploy/setup/system-packages $(BIN)/python demo || true
	@$(BIN)/blendstream demo $(ARGS)

packages: setup  ## install missing system packages, or say which they are
	@deploy/setup/system-packages $(BIN)/python

test: setup packages  ## all but the longest tests, on a real Kafka and Redis, a quarter of an hour
	$(BIN)/python -m pytest -n $(JOBS) -m "not more" --durations=40 $(ARGS)

test-more: setup packages  ## the others: machines lost, networks cut, a kill at every step, wheels
	$(BIN)/python -m pytest -n $(JOBS) -m more --durations=40 $(ARGS)

# Tracing takes half as long again.
coverage: setup packages  ## both, and the lines that they do not reach
	$(BIN)/python -m pytest -n $(JOBS) --cov --cov-report=term:skip-covered $(ARGS)

test-fast: setup  ## what needs no servers, two minutes
	$(BIN)/python -m pytest -n 2 $(FAST) -m "not (integration or faults or statistical or browser or package or properties or fuzz or long)" $(ARGS)

check: setup  ## format, lint, types, and who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup packages  ## benchmarks; BENCH="name ..." for some of them
	$(BIN)/python -m bench $(BENCH)

# By seeds: random schedules, 80 minutes at most; the same command goes on where it stopped.
chaos: setup packages  ## parts killed, paused and restarted; SEEDS=1-100 for random schedules
ifdef SEEDS
	$(BIN)/python -m tests.faults.chaos $(SEEDS) $(ARGS)
else
	$(BIN)/python -m pytest --slow --timeout 7200 -m faults $(ARGS)
endif

# Draws docs/soak-light.svg and docs/soak-dark.svg, and writes docs/soak.csv.
soak: setup packages  ## a whole service under random faults; MINUTES=60
	$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),60) $(ARGS)

# Plants them in a copy of this tree. FAULTS="word ..." for those whose description has a word.
mutants: setup  ## planted faults, and misreadings of the device protocol; who does not notice them
	$(BIN)/python -m tests.mutants $(FAULTS)

fuzz: setup packages  ## many random inputs
	$(BIN)/python -m pytest --slow --timeout 7200 --hypothesis-profile=fuzz -m "properties or fuzz" $(ARGS)

test-statistical: setup  ## larger samples
	$(BIN)/python -m pytest --slow --timeout 7200 -m statistical $(ARGS)

# Writes docs/demo-run.txt, the pictures of the results page, and the figures of README.md and docs/.
front-page: setup packages  ## run the demo for README.md: its tables and pictures, five minutes
	$(BIN)/python docs/front_page.py --run

docs: setup  ## the pages of docs/ as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html is the first page. To search, too: $(BIN)/python -m http.server --directory site"

# One version of each package for every Python: `fewest` chooses what the oldest, 3.11, can run too.
lock: setup  ## choose the newest versions anew; write requirements.lock, the image's locks and licences
	UV_SYSTEM_CERTS=true $(BIN)/uv pip compile pyproject.toml --all-extras --upgrade --universal --python-version 3.11 \
	  --fork-strategy fewest --generate-hashes --no-emit-index-url --custom-compile-command "make lock" \
	  --quiet --output-file requirements.lock
	UV_SYSTEM_CERTS=true $(BIN)/uv pip compile pyproject.toml --extra server --constraint requirements.lock \
	  --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" --quiet --output-file deploy/container/requirements-server.lock
	@# What builds the wheel, so that an image or a host fetches nothing that is not held by hash.
	echo hatchling | UV_SYSTEM_CERTS=true $(BIN)/uv pip compile - --constraint requirements.lock \
	  --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" --quiet --output-file deploy/container/requirements-build.lock
	$(MAKE) setup
	$(BIN)/python docs/licences.py

clean:  ## remove what was built or installed here (not the user's cache of Kafka's jars)
	rm -rf $(VENV) dist build site .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
