# The checks. `make test` is the whole of them; `make test-fast` needs no engine.
PYTEST := $(BIN)/python -m pytest

.PHONY: test test-fast test-engine test-long faults check smoke

test: test-fast test-engine ## Everything: fast tests first, then those on real vLLM engines

test-fast: setup ## What needs no engine (under 3 minutes)
	@$(PYTEST) -m "not engine and not training and not alone and not long" -q -n 4 --dist loadfile
	@$(PYTEST) -m "alone and not long" -q

test-engine: setup setup-training ## What runs on real vLLM engines, and what trains
	@$(PYTEST) -m "(engine or training) and not long" -q

test-long: setup setup-training ## The heavier forms: compiled engines, sharded trainings, whole qualifications (half an hour)
	@$(PYTEST) -m long -q

faults: setup setup-engine ## Every entry of the fault catalogue, with a count at the end
	@$(PYTEST) -m fault -q --fault-summary

check: setup ## Linters, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

smoke: setup setup-engine ## Real engines, the whole surface, one of them killed
	@$(BIN)/python -m tests.smoke
