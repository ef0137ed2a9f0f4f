# Random abuse: of gateways before fake engines, of real engines under load, and for long.
.PHONY: abuse

abuse: setup ## Random requests, faults, swaps and reloads, each answer judged (10 minutes; MINUTES=n EXAMPLES=n SEED=n)
	@$(BIN)/python -m tests.abuse $(if $(MINUTES),--minutes $(MINUTES)) $(if $(EXAMPLES),--examples $(EXAMPLES)) $(if $(SEED),--seed $(SEED))

.PHONY: chaos
chaos: setup setup-engine ## Real engines under load while everything around them breaks (MINUTES=10)
	@$(BIN)/python -m loadtests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

.PHONY: soak
soak: setup ## Does anything grow under every sort of request, faults and reloads (MINUTES=20)
	@$(BIN)/python -m loadtests.soak $(if $(MINUTES),--minutes $(MINUTES))
