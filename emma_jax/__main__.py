"""``python -m emma_jax`` is ``emma-jax``."""

from emma_jax.cli import main

main()
