"""Numbers that can be trusted: order keys, integer limbs, histograms, ranking and crossing counts."""
