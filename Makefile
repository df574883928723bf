# From a bare clone: `make demo`, `make test`. PIP_ARGS="--index-url ..." passes arguments to pip.
PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?= -n 2 --dist worksteal
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

SEEDS ?= $(shell seq 1 20)

.PHONY: demo map test quick seeds fuzz bench axe lint types check docs wheel smoke oldest audit sbom clean

demo: $(VENV)/.report
	$(BIN)/diffclust demo

map:
	@$(PYTHON) docs/modules.py

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

# k-means beside scikit-learn on one thread of a CPU; says where a ratio is 20 % below the kept one. BENCH_ARGS=--keep keeps.
bench: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/kmeans.py --short $(BENCH_ARGS)

# What the tests of the pages ask whether everyone can read them; without it they skip that question, and say so.
axe: build/axe/node_modules/axe-core/axe.min.js

build/axe/node_modules/axe-core/axe.min.js:
	npm install --silent --no-audit --no-fund --no-save --prefix build/axe axe-core@4.14.0

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

check: lint types test

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Builds wheel and sdist twice, which must give the same bytes, and runs the wheel from a folder of its own.
wheel: $(VENV)/.dev
	rm -rf dist build/again build/wheel
	for to in dist build/again; do SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
	    $(BIN)/python -m build --no-isolation --outdir $$to . >/dev/null || exit 1; done
	cd dist && sha256sum * && for file in *; do cmp $$file ../build/again/$$file || exit 1; done
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel dist/*.whl
	cd build && PYTHONPATH=wheel ../$(BIN)/python -c "import diffclust, pathlib; \
	    assert pathlib.Path(diffclust.__file__).parent.parent.name == 'wheel'; \
	    [getattr(diffclust, name) for name in diffclust.__all__]; print('wheel', diffclust.__version__)"
	cd build && PYTHONPATH=wheel ../$(BIN)/python -m diffclust --version

# The wheel and what it needs, no extras, in an environment of its own.
smoke: wheel
	rm -rf build/smoke && $(PYTHON) -m venv build/smoke/venv
	build/smoke/venv/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt dist/*.whl
	cd build/smoke && venv/bin/diffclust fit digits -k 10 --epochs 1 --set pretrain_epochs=1 --out a && \
	    venv/bin/diffclust predict a digits --out labels.csv

# The oldest versions that pyproject.toml allows. Their own deprecations are not ours.
oldest:
	rm -rf build/oldest && $(PYTHON) -m venv build/oldest
	$(PYTHON) tests/oldest.py > build/oldest.txt
	build/oldest/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -r build/oldest.txt pytest pytest-xdist hypothesis
	build/oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	build/oldest/bin/python -m pytest -m quick -W ignore::DeprecationWarning $(PYTEST_ARGS)

# Known holes in what is installed, and a list of it: by tools in an environment of their own.
audit: $(VENV)/.dev build/tools
	build/tools/bin/pip-audit --path $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")

sbom: $(VENV)/.core build/tools
	mkdir -p dist && build/tools/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --of JSON -o dist/diffclust.cdx.json

build/tools:
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) pip-audit cyclonedx-bom

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
	rm -rf $(VENV) build dist docs/_build docs/methods docs/api docs/figures docs/examples docs/extra docs/tutorial.md docs/results.md docs/invariance.md docs/streams.md diffclust-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
