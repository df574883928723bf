# From a bare clone: `make demo`, `make test`. PIP_ARGS="--index-url ..." passes arguments to pip.
PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?= -n 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

SEEDS ?= $(shell seq 1 20)

.PHONY: demo test quick seeds fuzz lint types check docs wheel clean

demo: $(VENV)/.report
	$(BIN)/diffclust demo

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The mathematics, the contract of two methods, the command's basics: in a minute.
quick: $(VENV)/.test
	$(BIN)/python -m pytest -m quick $(PYTEST_ARGS)

# The mathematics and what all methods promise, on other data and from other seeds. SEEDS="7 8" for these alone, "any" draws.
seeds: $(VENV)/.test
	@for seed in $(SEEDS); do \
	    DIFFCLUST_TESTS_SEED=$$seed $(BIN)/python -m pytest -m swept $(PYTEST_ARGS) || failed="$$failed $$seed"; \
	done; test -z "$$failed" || { echo "failed with the seeds$$failed"; exit 1; }

# Hostile files, arrays and settings by the thousand; see docs/files.md. FUZZ_ARGS="--cases 50000 --kinds files --jobs 4" for others.
fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz/hostile.py $(FUZZ_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

check: lint types test

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Builds the wheel, installs it into a folder of its own and runs it from there.
wheel: $(VENV)/.dev
	rm -rf dist build/wheel
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel dist/*.whl
	cd build && PYTHONPATH=wheel ../$(BIN)/python -c "import diffclust, pathlib; \
	    assert pathlib.Path(diffclust.__file__).parent.parent.name == 'wheel'; \
	    [getattr(diffclust, name) for name in diffclust.__all__]; print('wheel', diffclust.__version__)"
	cd build && PYTHONPATH=wheel ../$(BIN)/python -m diffclust --version

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	touch $@

$(VENV)/.report: $(VENV)/.core
	$(PIP) -e ".[report]"
	touch $@

$(VENV)/.test: $(VENV)/.report
	$(PIP) -e ".[test]"
	touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP) -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist docs/_build docs/methods docs/api docs/figures docs/results.md docs/invariance.md docs/streams.md diffclust-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
