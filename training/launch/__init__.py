"""From a configuration and a machine to a TRL trainer: what is refused, which arguments, which model."""
