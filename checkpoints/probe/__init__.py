"""The proof that an engine computes what the trainer computed.

`contract` is the data, `maker` computes it from the trainer's weights (torch), `replay` asks an
engine, `parity` compares (pure), `diagnosis` names the cause (pure), `report` shows it.
"""
