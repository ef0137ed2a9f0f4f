"""The contract between a trainer and the engines: what a published version is and when it may serve.

Owns the manifest, the store, publishing, the static check and the probe. Needs neither torch nor a
web framework (only `checkpoints.probe.maker` imports torch, when it is run). Imports nothing from
`gateway`, `backends` or `training`; all three may import it.
"""
