# Fleets of up to 10,000 engines, simulated; renews the figures of docs/scale.md.
.PHONY: simulate

simulate: setup ## Simulate routing, failures and gateways for up to 10,000 engines (minutes)
	@$(BIN)/python -m tests.simulation
