# Two commands that need only Python 3.11 and make:
#   make demo    the main job end to end on embedded data
#   make test    lint, types and tests

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test clean

demo: $(READY)
	$(BIN)/lingraft demo

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

# The whole set-up: a virtual environment with the pinned versions. Made anew when the pins change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "lingraft needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) dist build
