"""Make a small GGUF model as slow as wished without changing what it says.

Two changes, both of which leave the function of a Llama model as it is:

- ``layers``: layers are appended whose two output projections are zero. They add nothing to the
  residual stream.
- ``widen``: the embedding and the feed-forward part become that many times wider, filled up with
  zeros. The norms average over more numbers then, so their weights shrink by the square root of
  the factor and their epsilon by the factor. For 4 and 16 that is exact in binary.

The result costs what a bigger model costs, so that speculation pays on it as it does on real
ones: a token of the target costs many of the draft, and checking five tokens at once costs little
more than one, because the time goes into reading the weights.

    python tests/real/fatten.py tests/real/models/target.gguf fat.gguf --layers 4 --widen 4
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Matrix = np.ndarray[Any, np.dtype[np.floating[Any]]]

DTYPES: dict[str, type[np.floating[Any]]] = {"f16": np.float16, "f32": np.float32}
ZEROED = ("attn_output.weight", "ffn_down.weight")
"""What writes into the residual stream; zero in an appended layer."""

SAME, TIMES = False, True
WIDER = {
    "token_embd.weight": (SAME, TIMES),
    "output.weight": (SAME, TIMES),
    "attn_q.weight": (SAME, TIMES),
    "attn_k.weight": (SAME, TIMES),
    "attn_v.weight": (SAME, TIMES),
    "attn_output.weight": (TIMES, SAME),
    "ffn_gate.weight": (TIMES, TIMES),
    "ffn_up.weight": (TIMES, TIMES),
    "ffn_down.weight": (TIMES, TIMES),
}
"""Which axes of a matrix (rows, columns) run along the embedding or the feed-forward part and
grow with them. The heads keep their size."""


def fatten(
    source: Path, target: Path, *, layers: int = 0, widen: int = 1, dtype: str = "f32"
) -> None:
    """Write ``source`` to ``target`` with ``layers`` more layers, ``widen`` times wider.

    Matrices are stored as ``dtype``; vectors (norms) stay f32, as llama.cpp wants them.
    """
    reader = gguf.GGUFReader(source)
    shape = Shape.of(reader)
    changed = shape.changed(layers, widen)
    writer = gguf.GGUFWriter(target, shape.architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = changed.pop(field.name, None)
        if value is None:
            value = field.contents()
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], inner)
    for name, value in changed.items():
        writer.add_key_value(name, value, gguf.GGUFValueType.UINT32)
    weights = {t.name: _wider(t.name, np.asarray(t.data), widen) for t in reader.tensors}
    for name, data in {**weights, **_appended(weights, shape.layers, layers)}.items():
        writer.add_tensor(name, _stored(data, dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@dataclass(frozen=True)
class Shape:
    """What the header of a Llama model says of its size."""

    architecture: str
    layers: int
    embedding: int
    feed_forward: int
    heads: int
    epsilon: float

    @staticmethod
    def of(reader: gguf.GGUFReader) -> Shape:
        def value(name: str) -> Any:
            field = reader.get_field(name)
            if field is None:
                raise ValueError(f"{name} is missing: not a Llama model")
            return field.contents()

        architecture = str(value("general.architecture"))
        return Shape(
            architecture=architecture,
            layers=int(value(f"{architecture}.block_count")),
            embedding=int(value(f"{architecture}.embedding_length")),
            feed_forward=int(value(f"{architecture}.feed_forward_length")),
            heads=int(value(f"{architecture}.attention.head_count")),
            epsilon=float(value(f"{architecture}.attention.layer_norm_rms_epsilon")),
        )

    def changed(self, layers: int, widen: int) -> dict[str, Any]:
        """The header fields that differ after the change."""
        head = self.embedding // self.heads
        fields = {
            "block_count": self.layers + layers,
            "embedding_length": self.embedding * widen,
            "feed_forward_length": self.feed_forward * widen,
            "attention.layer_norm_rms_epsilon": self.epsilon / widen,
            # No longer the embedding divided by the number of heads, so it has to be said.
            "attention.key_length": head,
            "attention.value_length": head,
        }
        return {f"{self.architecture}.{name}": value for name, value in fields.items()}


def _appended(weights: Mapping[str, Matrix], own: int, layers: int) -> dict[str, Matrix]:
    last = f"blk.{own - 1}."
    parts = {name.removeprefix(last): w for name, w in weights.items() if name.startswith(last)}
    return {
        f"blk.{layer}.{part}": np.zeros_like(data) if part in ZEROED else data
        for layer in range(own, own + layers)
        for part, data in parts.items()
    }


def _wider(name: str, data: Matrix, widen: int) -> Matrix:
    if widen == 1:
        return data
    full = data.astype(np.float32)
    if full.ndim == 1:
        filling = np.zeros(full.size * (widen - 1), np.float32)
        return np.concatenate([full / np.float32(math.sqrt(widen)), filling])
    part = name.split(".", 2)[-1] if name.startswith("blk.") else name
    rows, columns = (widen if grows else 1 for grows in WIDER[part])
    wide = np.zeros((full.shape[0] * rows, full.shape[1] * columns), np.float32)
    wide[: full.shape[0], : full.shape[1]] = full
    return wide


def _stored(data: Matrix, dtype: str) -> Matrix:
    return np.ascontiguousarray(data.astype(DTYPES[dtype] if data.ndim == 2 else np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--widen", type=int, default=1)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="f32")
    args = parser.parse_args()
    fatten(args.source, args.target, layers=args.layers, widen=args.widen, dtype=args.dtype)


if __name__ == "__main__":
    main()
