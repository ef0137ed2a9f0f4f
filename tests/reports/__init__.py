"""Tests of `reports`."""
