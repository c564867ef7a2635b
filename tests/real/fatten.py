"""Make a small GGUF model as slow as wished without changing one token of what it says.

A layer whose two output projections are zero adds nothing to the residual stream, so a model with
such layers appended computes the same function at the cost of a bigger one. That is what makes
speculation pay on it as it does on real models: the draft is cheap, the target is not.

    python tests/real/fatten.py tests/real/models/target.gguf fat.gguf --layers 40
    python tests/real/fatten.py in.gguf out.gguf --dtype f16      # no layers: only another type
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np

ZEROED = ("attn_output.weight", "ffn_down.weight")
"""The projections that write into the residual stream; zero in an identity layer."""

DTYPES: dict[str, type[np.floating[Any]]] = {"f16": np.float16, "f32": np.float32}


def fatten(source: Path, target: Path, *, layers: int = 0, dtype: str = "f32") -> None:
    """Write ``source`` to ``target`` with ``layers`` identity layers after its own.

    Matrices are stored as ``dtype``; vectors (norms) stay f32, as llama.cpp wants them.
    """
    reader = gguf.GGUFReader(source)
    architecture = str(_value(reader, "general.architecture"))
    block_count = f"{architecture}.block_count"
    own_layers = int(_value(reader, block_count))
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = own_layers + layers if field.name == block_count else field.contents()
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], inner)
    weights = {tensor.name: np.asarray(tensor.data) for tensor in reader.tensors}
    for name, data in weights.items():
        writer.add_tensor(name, _stored(data, dtype))
    last = f"blk.{own_layers - 1}."
    for layer in range(own_layers, own_layers + layers):
        for name, data in weights.items():
            part = name.removeprefix(last)
            if part == name:
                continue
            kept = np.zeros_like(data) if part in ZEROED else data
            writer.add_tensor(f"blk.{layer}.{part}", _stored(kept, dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _value(reader: gguf.GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    if field is None:
        raise ValueError(f"{name} is missing: not a model file")
    return field.contents()


def _stored(data: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(data.astype(DTYPES[dtype] if data.ndim == 2 else np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="f32")
    args = parser.parse_args()
    fatten(args.source, args.target, layers=args.layers, dtype=args.dtype)


if __name__ == "__main__":
    main()
