"""What was measured, kept across sessions: a SQLite store and the export of its rows."""
