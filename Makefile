# Two commands that need only Python 3.11 and make:
#   make demo    the main job end to end on embedded data
#   make test    lint, types and tests
# and, for those who change lingraft:
#   make quick   lint, types and the tests worth running after every edit: a minute or so
#   make docs    the documentation as a site in build/site; any warning is an error
#   make dist    wheel and source distribution in dist/
#   make explore the properties of `make test` on examples that no run has seen yet: minutes, worth it before a release
#   make faults  commands killed, disks full, files damaged …: minutes, and a table (disks as root only)
#   make fuzz    damaged and hostile files for every reader, and certificates that were tampered with: minutes, and a
#                table; FUZZ=20000 and TAMPER=100000 take longer

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
# whole files, in order: what a file prepares for its tests is made once, and the last files are short
PYTEST = $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo quick test explore docs dist faults fuzz clean

demo: $(READY)
	$(BIN)/lingraft demo

quick: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST) --quick

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST)

explore: $(READY)
	$(PYTEST) --hypothesis-profile=default

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

faults: $(READY)
	$(BIN)/python tests/faults/campaign.py

FUZZ ?= 1000
TAMPER ?= 10000
fuzz: $(READY)
	LINGRAFT_FUZZ=$(FUZZ) $(PYTEST) tests/fuzz
	$(BIN)/python tests/fuzz/tampering/campaign.py --count $(TAMPER) --out build/tampering.json --keep build/tampering

# The whole set-up: a virtual environment with the pinned versions. Made anew when the pins change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "lingraft needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up $(VENV); the first time this downloads PyTorch and more, which takes some minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps torchattacks
	@touch $@

clean:
	rm -rf $(VENV) dist build
