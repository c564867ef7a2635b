"""The box's small programs. On disk each is a thin client; what it does is in here."""
