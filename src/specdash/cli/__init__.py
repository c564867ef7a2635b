"""The command line: parses, dispatches, formats. No logic."""
