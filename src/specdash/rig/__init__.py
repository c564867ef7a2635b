"""The rig's TOML: schema, load, validate, save."""
