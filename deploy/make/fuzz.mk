# Broken bytes at every reader of bytes: files, engines' answers, clients' requests, the documented routes.
.PHONY: fuzz

fuzz: setup ## Feed broken bytes to every reader of bytes (INPUTS=20000 SEED=1)
	@$(BIN)/python -m tests.fuzz $(if $(INPUTS),--inputs $(INPUTS)) $(if $(SEED),--seed $(SEED))
