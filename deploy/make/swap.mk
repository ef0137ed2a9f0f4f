# Weights that change while engines serve. Each prints what happens and ends with one line of figures.
.PHONY: demo-swap bench-swap swap-oracle

demo-swap: setup setup-engine ## Real engines under load: swapped, refused, rolled back, killed, continued (minutes)
	@$(BIN)/python -m loadtests.swap.demo

bench-swap: setup setup-engine ## Twenty swaps in a row at 70 % of capacity (minutes; QUICK=1)
	@$(BIN)/python -m loadtests.swap.bench $(if $(QUICK),--quick)

swap-oracle: setup setup-engine ## Qualify and swap seven architectures against cold starts (half an hour; ONLY=llama TP=1)
	@$(BIN)/python -m tests.oracle $(if $(ONLY),--only $(ONLY)) $(if $(TP),--tensor-parallel $(TP))
