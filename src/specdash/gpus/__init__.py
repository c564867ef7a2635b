"""GPU telemetry: parsers for every form of nvidia-smi's output, streams, holders, idle levels."""
