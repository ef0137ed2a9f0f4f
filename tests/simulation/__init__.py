"""The gateway's own decisions in a discrete-event simulator: fleets of 10 to 10,000 engines in seconds."""
