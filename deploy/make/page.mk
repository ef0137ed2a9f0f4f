# The operator's page in a real browser, and the documentation as a site.
.PHONY: setup-browser page docs

setup-browser: setup
	@$(PYTHON) deploy/setup.py browser

page: setup setup-engine setup-browser ## Drive the operator's page in Chromium during rollouts on real engines (minutes)
	@$(BIN)/python -m tests.page.cost
	@$(BIN)/python -m tests.page

docs: setup ## Build the documentation into build/site and hold it against the code
	@$(BIN)/python -m tests.docs
