# Everything that compose runs, on this machine and without Docker.
# PORT=8080 where 80 is not to be had; MODEL=smollm2-135m-instruct for answers that make sense.
.PHONY: stack stack-up
STACK := $(BIN)/python -m deploy.stack $(if $(PORT),--port $(PORT)) $(if $(MODEL),--model $(MODEL))

stack: setup setup-engine ## nginx, 2 gateways, 2 engines, Valkey, Prometheus, Alertmanager: an alert fires and clears
	@$(STACK)

stack-up: setup setup-engine ## The same, and stay: http://localhost/predict until Ctrl-C
	@$(STACK) --stay
