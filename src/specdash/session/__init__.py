"""One open rig: its connections, live streams, queue and journal. The facade of tui and cli."""
