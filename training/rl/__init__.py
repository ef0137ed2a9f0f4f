"""GRPO whose rollouts come from the gateway that serves the policy, and whose updates are swapped in there.

In order of one update: `rollouts.py` samples from the gateway, TRL steps, `policy.py` publishes and waits
until every engine serves the new weights. `mismatch.py` tells how far trainer and engines are apart,
`trajectories.py` keeps what was sampled and what it was worth. `trainer.py` joins them with TRL.
"""
