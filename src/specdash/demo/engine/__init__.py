"""The box's inference server: SGLang's flags, log lines and endpoints, with simulated speed.

It runs as the unit's own process and imports the standard library only, so that it is up in no time.
"""
