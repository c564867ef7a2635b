"""The load generator: a streaming client in a process of its own, token accounting, statistics."""
