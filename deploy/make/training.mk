# Training: its environment, and runs of it.
.PHONY: setup-training

setup-training: ## Add the trainer (TRL, accelerate, peft, datasets) to .venv-engine
	@$(PYTHON) deploy/setup.py engine --device $(ENGINE) --with training
