"""What supervises the engine process. One file a supervisor."""
