"""Lossless reading and editing of launch configs. Pure: bytes in, values out."""
