# Plain venv and pip; nothing needs to be installed by hand first but Python 3.11 or newer.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY  := $(VENV)/.ready
EMPTY  := build/package/venv/$(notdir $(BIN))

.DEFAULT_GOAL := help
.PHONY: help demo chat quick test long gpu check pages pictures docs package sbom bench clean

help:                     ## show this list
	@sed -n 's/^\([a-z]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "jumok needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)            ## train on the built-in corpus for two minutes, generate text, write two pages
	mkdir -p runs
	rm -rf runs/demo
	$(BIN)/jumok corpus write stories --chars 2000000 > runs/stories.txt
	$(BIN)/jumok train runs/stories.txt --minutes 2 --out runs/demo
	$(BIN)/jumok generate runs/demo "눈 내리는 토요일 아침, 용감한 펭귄 " --tokens 200 --seed 1
	$(BIN)/jumok view runs/demo "눈 내리는 토요일 아침, 용감한 펭귄 " --tokens 60 --seed 1 --out runs/demo/view.html
	$(BIN)/jumok share runs/demo --out runs/demo/page.html --prompt "눈 내리는 토요일 아침, 용감한 펭귄 "

chat: $(READY)            ## train a model that holds a conversation, from nothing, in about 35 minutes; goes on where it was stopped
	$(BIN)/python bench/chat.py --chat

# Without cached bytecode each worker, and each process that a test starts, compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

quick: $(READY)           ## run the quick tests, in about 45 seconds on two cores
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not slow and not long and not browser and not compile"

test: $(READY)            ## run the test suite
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not long"

long: $(READY)            ## run the tests that take long: chapters that train, kills, faults
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m long

gpu: $(READY)             ## run the tests that need an NVIDIA GPU
	CUDA_VISIBLE_DEVICES=0 $(BIN)/python -m pytest -q tests/test_cuda.py tests/inference/test_torch_slots.py

check: $(READY)           ## check style and types, of Python and of the pages, and the words of the Korean texts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python .ci/words.py
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory pages; \
	  else echo "There is no npm here: the JavaScript of the pages was not checked." >&2; fi

pages: node_modules/.ready ## check style and types of the JavaScript of the pages, which needs Node 20
	npm run --silent check

node_modules/.ready: package.json package-lock.json
	npm ci --ignore-scripts --no-audit --no-fund --silent
	touch $@

pictures: $(READY)        ## draw the pictures of the chapters and take the screenshots again, in half an hour; needs Chromium and Node
	$(BIN)/python docs/sources.py
	$(BIN)/python docs/draw.py
	$(BIN)/python docs/picture_chapters.py
	$(BIN)/python docs/picture_pages.py

docs: $(READY)            ## build the documentation site in build/site
	rm -rf build/site build/doctrees
	$(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees/en docs build/site
	$(BIN)/python -m sphinx -q -W --keep-going -t ko -d build/doctrees/ko docs build/site
	$(BIN)/python -m pagefind --quiet --site build/site --exclude-selectors .headerlink
	@echo 'build/site is complete. To read it: $(BIN)/python -m http.server --directory build/site'

# Two builds of a commit are the same bytes.
package: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 315532800)
package: $(READY)         ## build wheel and sdist, install each in an empty environment and train with it
	rm -rf build/package build/again
	$(BIN)/python -m build --no-isolation --outdir build/package .
	$(BIN)/python -m build --no-isolation --outdir build/again .
	diff -r build/package build/again
	$(PYTHON) -m venv build/package/venv
	$(EMPTY)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt build/package/*.whl
	cd build/package && ../../.ci/smoke $(abspath $(EMPTY))/jumok
	$(EMPTY)/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/package/*.tar.gz
	cd build/package && ../../.ci/smoke $(abspath $(EMPTY))/jumok

sbom: package             ## write build/sbom.cdx.json: what an installation consists of (CycloneDX)
	$(PYTHON) -m venv build/tools
	build/tools/$(notdir $(BIN))/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	build/tools/$(notdir $(BIN))/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --validate \
	  -o build/sbom.cdx.json build/package/venv

bench: $(READY)           ## measure the speed of training steps, in ten minutes
	$(BIN)/python bench/training.py

clean:                    ## remove what make has made, but never a run
	rm -rf $(VENV) node_modules build dist src/*.egg-info $(addprefix src/jumok/inference/native/*.,so dll sha256)
