"""Benchmark of emma-jax against the libraries people use today: ``python -m bench``.

Goal: one run that a sceptic can repeat. Every row is checked against a float64 definition and against each peer before
anything is timed; contestants take turns, so that a drifting machine drifts for all of them; compiling is timed apart;
and each time stands beside that of one plain read of the same bytes.

Rows are in `bench.rows`: a new one is one small function there.
"""
