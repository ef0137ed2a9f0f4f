"""The operator's page: static files without a build step, and the figures that they ask for."""
