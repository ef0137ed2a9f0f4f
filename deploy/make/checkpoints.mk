# Checkpoints: the corpus of broken ones, real engines under the probe, speed, killed publishers.
.PHONY: bad-checkpoints probe bench-publish kill-publish

bad-checkpoints: setup ## Show that every broken checkpoint is refused before an engine
	@$(BIN)/python -m tests.checkpoints.refusals

probe: setup setup-engine ## Probe honest and wrong real engines (minutes)
	@$(BIN)/python -m loadtests.publish.probe --environment .venv-engine

bench-publish: setup ## Compare publishing with copying and hashing
	@$(BIN)/python -m loadtests.publish.bench

kill-publish: setup ## Kill the publisher at 200 random points under a polling reader (minutes)
	@$(BIN)/python -m loadtests.publish.kill
