# make repro [PROFILE=name] [TARGETS="stage ..."]   install, then `polygrain run`: what is stale in the graph
# make test | test-slow    the quick suite | the end-to-end promises: cache, kill, same bytes
# make install             into .venv, with the command `polygrain`: .venv/bin/polygrain --help
# make flow | ui | serve | share | fetch | worker | docs   `polygrain flow`, ...; PROFILE TARGETS JOBS WORKERS PORT CRON REMOTE
# make compose [PROFILE=name]   profiles/NAME/params.yaml from values.yaml there; all that run something do so themselves
# make lint | bench        style | one line of JSON per claim
# make help                these lines
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
override STAGES := $(TARGETS) $(if $(PROFILE),--profile $(PROFILE))
# A process for each core; the tests of one file stay in one.
override TESTED = python -m pytest -q --numprocesses auto --maxprocesses 8 --dist loadfile
# In the place of the recipe's shell, and told who make is: what runs ends with a make that is killed.
override ALONE = exec env POLYGRAIN_STARTER=$$PPID

export PYTHON REMOTE CRON
export ROOT := $(CURDIR)
export PATH := $(VENV)/bin:$(value PATH)
export DVC_NO_ANALYTICS := 1
export DVC_SITE_CACHE_DIR := $(CURDIR)/.dvc/tmp/site
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false

.PHONY: install help compose repro flow ui serve share fetch worker test test-slow lint bench docs lock clean

install: $(READY)

$(READY): requirements.lock
	"$$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "error: Python 3.11.4 or newer is needed; PYTHON=... names another")'
	"$$PYTHON" -m venv .venv
	.venv/bin/python -m pip install --quiet uv==$(UV_VERSION)
	VIRTUAL_ENV=.venv .venv/bin/uv pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
	VIRTUAL_ENV=.venv .venv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
	.venv/bin/python -m pipeline.ready
	.venv/bin/python -m pipeline.tables
	touch $@

help:
	@sed -n 's/^# make/make/p' Makefile

compose: $(READY)
	python -m polygrain.config.compose $(if $(PROFILE),profiles/$(PROFILE))

repro: $(READY)
	$(ALONE) python -m polygrain run $(STAGES)

flow: $(READY)
	$(ALONE) python -m polygrain flow $(STAGES) $(if $(JOBS),--jobs $(JOBS)) $(if $(WORKERS),--workers)

ui: $(READY)
	$(ALONE) python -m polygrain ui $(if $(PORT),--port $(PORT))

serve: $(READY)
	$(ALONE) python -m polygrain serve $(STAGES) $(if $(JOBS),--jobs $(JOBS)) $(if $(CRON),--cron="$$CRON")

share: $(READY)
	python -m polygrain share $(if $(PROFILE),--profile $(PROFILE)) $(if $(REMOTE),--remote="$$REMOTE")

fetch: $(READY)
	python -m polygrain fetch $(STAGES) $(if $(REMOTE),--remote="$$REMOTE")

worker: $(READY)
	$(ALONE) python -m polygrain worker $(if $(REMOTE),--remote="$$REMOTE")

test: $(READY)
	$(TESTED) -m 'not slow'

test-slow: $(READY)
	$(TESTED) -m slow

lint: $(READY)
	ruff check .
	ruff format --check .

bench: $(READY)
	python -m benchmarks

docs: $(READY)
	python -m polygrain docs

lock: $(READY)
	uv pip compile pyproject.toml --universal --python-version 3.11 --extra cpu --extra flow --extra share --extra export \
		--extra test --extra docs --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet --output-file requirements.lock

clean:
	rm -rf .work
