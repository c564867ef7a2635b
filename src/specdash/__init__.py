"""specdash: find the right speculation depth of a deployed LLM server."""

__version__ = "0.1.0"
