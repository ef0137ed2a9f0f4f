# Everything is done by deploy/setup.py and the command `changeover`; this only names it.
PYTHON ?= python3
ENGINE ?= cpu
CONFIG ?= infer_config.yaml
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup setup-engine serve clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: setup-gateway
setup-gateway:
	@$(PYTHON) deploy/setup.py gateway --without-tools

setup: ## Make .venv: the gateway, its tests and tools
	@$(PYTHON) deploy/setup.py gateway

setup-engine: ## Make .venv-engine: vLLM (ENGINE=cuda for NVIDIA GPUs)
	@$(PYTHON) deploy/setup.py engine --device $(ENGINE)

serve: setup-gateway setup-engine ## Start two engines and the gateway on port 8000 (CONFIG=file, ENGINE=cuda)
	@$(BIN)/changeover serve --config $(CONFIG)

clean: ## Remove both environments, logs and caches of tools (models stay in ~/.cache/changeover)
	rm -rf .venv .venv-engine .cache .mypy_cache .ruff_cache .pytest_cache logs *.egg-info

include $(wildcard deploy/make/*.mk)
