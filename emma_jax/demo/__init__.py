"""``emma-jax demo``: five tasks made from physics, solved by classical signal processing, scored like any submission.

Start with `run` for the whole, `scene` for what a task consists of, and `aoa` for the shortest road from an antenna
array to a score. Everything is NumPy in float64, seeded by one integer; nothing is downloaded.
"""

from __future__ import annotations

from emma_jax.demo.run import SCENES, draw, leave_out, run_demo, training_draws
from emma_jax.demo.scene import Draws, Scene

__all__ = ["SCENES", "Draws", "Scene", "draw", "leave_out", "run_demo", "training_draws"]
