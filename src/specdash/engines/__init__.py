"""Inference servers, each by its own rules. One file an engine."""
