# Changing weights under traffic: what proves that it may be done, and that it was done right.
.PHONY: swap-oracle

swap-oracle: setup setup-engine ## Qualify and swap seven architectures on real engines (half an hour; ONLY=llama,qwen3 TP=1)
	@$(BIN)/python -m tests.oracle $(if $(ONLY),--only $(ONLY)) $(if $(TP),--tensor-parallel $(TP))
