# make repro [PROFILE=name] [TARGETS="stage ..."]   the whole graph, or what these need; a second call runs nothing
# make flow [PROFILE=] [JOBS=4] [TARGETS="..."]   the same, branches side by side, to watch in a browser
# make ui [PORT=4200]         the pages to watch runs on; make serve [CRON="0 2 * * *"]: start runs from there
# make share | fetch [REMOTE=/folder, ssh://user@host/path or s3://bucket/prefix]   results to and from the team
# make worker [REMOTE=...]    this clone runs stages for others (`make flow WORKERS=1`)
# make compose [PROFILE=name] profiles/NAME/params.yaml from values.yaml there; all that run something do so themselves
# make test | test-slow       the quick suite | the end-to-end promises: cache, kill, same bytes
# make lint | bench           style | one line of JSON per claim
# make docs                   the site, offline: docs/_build/html/index.html
PYTHON ?= python3

# Words from outside reach no shell as text. Make would expand a `$(shell ...)` in them, so each is taken literally; a
# value that may hold more than letters, digits and - _ goes to the recipes through the environment, in quotes.
override WORDS := PYTHON PROFILE TARGETS JOBS WORKERS PORT CRON REMOTE
$(foreach name,$(filter-out .% %MAKEFLAGS %MAKEOVERRIDES,$(.VARIABLES)),$(if $(filter command,$(firstword \
	$(origin $(name)))),$(eval override $(name) := $$(value $(name)))))
$(foreach name,$(WORDS),$(eval override $(name) := $$(value $(name))))
override SHELL := /bin/sh
override .SHELLFLAGS := -c
override LETTERS := a b c d e f g h i j k l m n o p q r s t u v w x y z
override DIGITS := 0 1 2 3 4 5 6 7 8 9
override CAPITALS := A B C D E F G H I J K L M N O P Q R S T U V W X Y Z
# What is left of $(1) without the characters of $(2).
override left = $(if $(2),$(call left,$(subst $(firstword $(2)),,$(1)),$(wordlist 2,99,$(2))),$(1))
# $(1) is $(2), of the characters $(3) and no others; $(4) says so.
override checked = $(if $(call left,$(2),$(3)),$(error $(1) is '$(2)': give $(4)))
override comma := ,
override space := $(subst x,,x x)
$(call checked,PROFILE,$(PROFILE),$(LETTERS) $(DIGITS) _ -,small letters$(comma) digits$(comma) - and _ only)
$(call checked,TARGETS,$(subst $(space),,$(TARGETS)),$(LETTERS) $(CAPITALS) $(DIGITS) _ - @,names of stages)
$(foreach name,JOBS WORKERS PORT,$(call checked,$(name),$($(name)),$(DIGITS),a whole number))
$(call checked,CRON,$(subst $(space),,$(CRON)),$(LETTERS) $(CAPITALS) $(DIGITS) @ * / - $(comma),five fields such as 0 2 * * *)
$(foreach word,$(PROFILE) $(TARGETS),$(if $(filter -%,$(word)),$(error $(word) begins with a -: give a name)))

override UV_VERSION := 0.13.8
override VENV := $(CURDIR)/.venv
override READY := .venv/ready
override GRAPH := $(if $(PROFILE),profiles/$(PROFILE)/dvc.yaml,dvc.yaml)
# Composes a profile's params.yaml first, and mends what a kill has left.
override define CHECK
python -m pipeline.ready $(if $(PROFILE),--profile $(PROFILE))
cd $(dir $(GRAPH)) && PYTHONPATH="$$ROOT" python -m stages.core.runner.command params.yaml
endef
# In the place of the recipe's shell, and told who make is: what runs ends with a make that is killed.
override ALONE = exec env POLYGRAIN_STARTER=$$PPID

export PYTHON REMOTE CRON
export ROOT := $(CURDIR)
export PATH := $(VENV)/bin:$(value PATH)
export DVC_NO_ANALYTICS := 1
export DVC_SITE_CACHE_DIR := $(CURDIR)/.dvc/tmp/site
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false

.PHONY: install compose repro flow ui serve share fetch worker test test-slow lint bench docs lock clean

install: $(READY)

$(READY): requirements.lock
	"$$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "error: Python 3.11.4 or newer is needed; PYTHON=... names another")'
	"$$PYTHON" -m venv .venv
	.venv/bin/python -m pip install --quiet uv==$(UV_VERSION)
	VIRTUAL_ENV=.venv .venv/bin/uv pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
	.venv/bin/python -m pipeline.ready
	touch $@

# The profiles that ship are linked to the graph when they are first wanted: a plain `dvc status` lists every graph it finds.
profiles/%/dvc.yaml:
	$(call checked,a profile,$*,$(LETTERS) $(DIGITS) _ -,small letters$(comma) digits$(comma) - and _ only)
	test -f $(dir $@)values.yaml || test -f $(dir $@)params.yaml || \
		{ echo "error: there is no profile $*; known here: $$(cd profiles && echo */)" >&2; exit 1; }
	ln -s ../../dvc.yaml $@

compose: $(READY)
	python -m stages.core.runner.compose $(if $(PROFILE),profiles/$(PROFILE))

repro: $(READY) $(GRAPH)
	$(CHECK)
	exec python -m pipeline.guard $$PPID 20 dvc --wait-for-lock repro $(if $(TARGETS),$(addprefix $(GRAPH):,$(TARGETS)),$(GRAPH))

flow: $(READY) $(GRAPH)
	$(CHECK)
	$(ALONE) python -m pipeline.flows $(if $(PROFILE),--profile $(PROFILE)) $(if $(TARGETS),--targets $(TARGETS)) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(WORKERS),--workers)

ui: $(READY)
	$(ALONE) python -m pipeline.server $(if $(PORT),--port $(PORT))

serve: $(READY)
	$(ALONE) python -m pipeline.deployment $(if $(PROFILE),--profile $(PROFILE)) $(if $(TARGETS),--targets $(TARGETS)) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(CRON),--cron "$$CRON")

share: $(READY)
	python -m pipeline.share push $(if $(PROFILE),--profile $(PROFILE)) $(if $(REMOTE),--remote="$$REMOTE")

fetch: $(READY)
	python -m pipeline.share fetch $(if $(PROFILE),--profile $(PROFILE)) $(if $(REMOTE),--remote="$$REMOTE") \
		$(if $(TARGETS),--targets $(TARGETS))

worker: $(READY)
	$(ALONE) python -m pipeline.worker $(if $(REMOTE),--remote="$$REMOTE")

test: $(READY)
	python -m pytest -q -m 'not slow'

test-slow: $(READY)
	python -m pytest -q -m slow

lint: $(READY)
	ruff check .
	ruff format --check .

bench: $(READY)
	python -m benchmarks

docs: $(READY)
	python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html

lock: $(READY)
	uv pip compile pyproject.toml --universal --python-version 3.11 --extra cpu --extra flow --extra share --extra export \
		--extra test --extra docs --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet --output-file requirements.lock

clean:
	rm -rf .work
