"""The cockpit: a Textual app that knows only the session's port, core values and the rig."""
