"""Commands, files, streams and tunnels on a host: SSH, local, inside a container, with sudo."""
