"""Restart-and-measure: the stages, their proofs, and the way back when one fails."""
