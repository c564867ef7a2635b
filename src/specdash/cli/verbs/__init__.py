"""One module a verb: HELP, arguments(parser) and run(args, out) -> exit code."""
