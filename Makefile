# Every target does its own set-up and skips what is done.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
SETTINGS ?= clusters/rehearsal.yaml
SCRIPTS := $(shell git ls-files '*.sh' '*.sbatch' .ci/run headnode/acceptance compute/slipway-health rehearsal/standins/enroot tests/registry/apptainer 2>/dev/null)

# $(call quoted,TEXT): TEXT as one word of the shell, whatever is in it.
quoted = '$(subst ','\'',$(1))'

.PHONY: help setup setup-cloud setup-rehearsal setup-test rehearse test test-quick test-gpu-suite check check-cloud test-bootstrap lock wheel docs bench-check bench-bootstrap bench-parse bench-locate bench-scenario bench-suite clean

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## What `cdk deploy` needs: .venv and the CDK CLI (below 800 MB)
	@tools/setup.sh deploy

setup-cloud: ## What `slipway rehearse --cloud-only` needs: no root, no Debian packages
	@tools/setup.sh deploy pcluster rehearsal

setup-rehearsal: setup ## And what a rehearsal needs: pcluster, the embedded AWS, Debian packages, tools of the local hosts
	@tools/setup.sh pcluster rehearsal debian hosts

setup-test: setup-rehearsal
	@tools/setup.sh test browser

rehearse: ## The whole deployment on this machine (SETTINGS=clusters/rehearsal.yaml)
	@if ! tools/setup.sh root debian; then \
	echo "setup: without: make setup-cloud && .venv/bin/slipway rehearse --cloud-only" $(call quoted,$(SETTINGS)) >&2; exit 3; fi
	@tools/setup.sh deploy pcluster rehearsal hosts
	@trap 'tools/setup.sh hand-back' EXIT; .venv/bin/slipway rehearse $(call quoted,$(SETTINGS))

# Where it is set, each of the tests' thousands of processes would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

# .ci/run makes the environment of torch before; without it the tests with torch are not collected.
WITH_TORCH = $(if $(wildcard .venv-gpu-suite/.stamp),SLIPWAY_GPU_SUITE=.venv-gpu-suite/bin/python)

test: setup-test ## All checks and tests; those of `make test-gpu-suite` if its environment is there
	@$(MAKE) --no-print-directory check
	@$(WITH_TORCH) .venv-test/bin/python -m pytest -n 4 --dist loadgroup

# Without root, hosts, Slurm, CDK or generated files.
QUICK := $(wildcard tests/slipway/test_check_rules.py tests/slipway/test_check_schema.py tests/slipway/test_*settings.py \
  tests/slipway/test_*page.py tests/slipway/test_status_judge.py tests/packaging tests/house tests/cost/test_*estimate.py tests/acceptance/test_*nccl.py \
  tests/acceptance/test_*limits*.py tests/acceptance/test_*report*.py tests/acceptance/test_*scenario*.py \
  tests/portability/test_import_env.py tests/cluster_config/test_cluster_config.py \
  tests/nodes/test_layout.py)

test-quick: ## The tests that need no root and little time (below a minute)
	@tools/setup.sh deploy test
	@.venv-test/bin/python -m pytest -n 2 --dist loadgroup -m "not slow and not hosts and not road" $(QUICK)

check: ## Formatting, types, import directions, shell scripts, and whether each test can be imported
	@tools/setup.sh test
	@$(MAKE) --no-print-directory --jobs=2 --output-sync check-types check-rest check-tests
	@.venv-test/bin/python tools/report.py

check-types:
	.venv-test/bin/mypy

check-rest:
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/lint-imports
	.venv-test/bin/python tools/circles.py
	.venv-test/bin/vermin --quiet --no-tips --target=3.9- acceptance gpusuite nodes headnode compute # the nodes' own Python
	.venv-test/bin/python tools/lock.py --check
	.venv-test/bin/vulture
	.venv-test/bin/python -m slipway.documentation --check
	.venv-test/bin/shellcheck -x $(SCRIPTS)
	.venv-test/bin/shfmt -d -i 2 -ci $(SCRIPTS)

# Imports every test. The four processes of `make test` then find the tests compiled, and compile none of them.
check-tests:
	@found=$$($(WITH_TORCH) .venv-test/bin/python -m pytest --collect-only --quiet 2>&1) || \
	{ grep --invert-match '^tests/.*::' <<<"$$found"; exit 1; }; tail -n 1 <<<"$$found"

test-gpu-suite: ## The GPU suite's programs with torch on the CPU (gloo), in their own environment of 1 GB
	@tools/setup.sh test gpu-suite
	@SLIPWAY_GPU_SUITE=.venv-gpu-suite/bin/python .venv-test/bin/python -m pytest tests/gpusuite/test_gpusuite_torch.py

check-cloud: setup-test ## Two examples and a file with every part on, through cdk-nag, cfn-lint and CDK's own validation
	@.venv-test/bin/python -m pytest tests/stacks tests/cluster_config

test-bootstrap: setup-test ## The node scripts' tests, with the kill sweep (SLIPWAY_SWEEP=all: at every command), distributions (SLIPWAY_DISTRIBUTIONS=all) and bash coverage
	@.venv-test/bin/python -m pytest tests/nodes

lock: ## Compile the requirement files from pyproject.toml anew
	@tools/setup.sh test
	@.venv-test/bin/python tools/lock.py

wheel: setup ## dist/slipway-VERSION-py3-none-any.whl: `slipway` and `acceptance` without a checkout
	@tools/setup.sh wheel

docs: setup ## Write the generated pages of docs/ and the JSON Schema of the settings anew, from the code
	@.venv/bin/python -m slipway.documentation

bench-check: setup-test ## The faults of the rules and of preflight, found or not, and the time next to pcluster's dry run
	@.venv-test/bin/python -m bench.check

bench-bootstrap: setup-test ## Foreground seconds of the nodes' bootstrap in a rehearsal, and imports of 8 images at once
	@.venv-test/bin/python -m bench.bootstrap

bench-parse: setup-test ## The parser on a log of 1 GB, next to a reader of plain regular expressions (needs 1.3 GB in TMPDIR)
	@.venv-test/bin/python -m bench.parse

bench-locate: setup-test ## The locator on simulated fleets, next to a tournament, pairs twice, and groups then bisection
	@.venv-test/bin/python -m bench.locate

bench-scenario: setup-test ## verify-configs on 1,000 CloudAI tests and the plan of 500, next to tomllib alone
	@.venv-test/bin/python -m bench.scenario

bench-suite: ## The GPU suite next to a bare script in plain torch, on this machine's GPUs (PYTHON: with torch; DIR: the reports)
	@$(call quoted,$(or $(PYTHON),python3)) -m bench.suite --report-dir $(call quoted,$(or $(DIR),.cache/bench-suite))

clean: ## Remove everything the targets made
	rm -rf .venv .venv-gpu-suite .venv-pcluster .venv-rehearsal .venv-test .rehearsal-tools node_modules cdk.out .cache dist
