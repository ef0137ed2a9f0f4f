# Deployment: what an operator runs, judged without Docker and without a cluster.
.PHONY: check-deploy

check-deploy: setup ## Judge images, compose, Kubernetes, nginx and monitoring with their own tools
	@$(BIN)/python -m deploy.checks
