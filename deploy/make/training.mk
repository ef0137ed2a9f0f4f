# Training: its environment, and runs of it.
.PHONY: setup-training

setup-training: ## Add the trainer (TRL, accelerate, peft, datasets) to .venv-engine
	@$(PYTHON) deploy/setup.py engine --device $(ENGINE) --with training

.PHONY: demo-sft
demo-sft: setup setup-training ## Train a small model while it is served: the served text changes (minutes)
	@$(BIN)/python -m deploy.demos.sft

.PHONY: demo-rl
demo-rl: setup setup-training ## Learn from the served model's own samples, each update swapped in (minutes)
	@$(BIN)/python -m deploy.demos.rl

.PHONY: bench-export
bench-export: setup setup-training ## Measure what publishing costs a training (on a quiet machine)
	@.venv-engine/bin/python -m training.exporter.bench "$$(.venv-engine/bin/python -m backends.models smollm2-135m-instruct)"
