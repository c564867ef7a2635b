"""The panes: each draws one part of the frame and changes nothing."""
