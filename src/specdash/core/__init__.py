"""Values, errors and ports that every room shares. No I/O, no third-party import."""
