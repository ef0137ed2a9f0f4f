"""`make swap-oracle`: architectures on real engines, qualified, swapped and compared with cold starts."""
