"""The rig in a box: a simulated rig behind real SSH, a real shell and real HTTP.

Start one with :func:`specdash.demo.box.start_box`, or ``python -m specdash.demo`` by hand. It
shares nothing with the product but the rig's schema and ``core``, so that a mistake in the product's
flag editor, log reader or token count cannot hide in here.
"""
