# Code, dependencies, licences and the bill of materials.
.PHONY: security

security: setup ## Look for unsafe code, known vulnerabilities, licences; write build/sbom.json
	@$(PYTHON) deploy/audit.py
