"""The engines specdash knows, one line each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from specdash.engines.llama_cpp import LlamaCpp
from specdash.engines.protocol import Engine
from specdash.engines.sglang import Sglang
from specdash.engines.vllm import Vllm
from specdash.rig.schema import EngineKind

ENGINES: Mapping[EngineKind, Engine] = MappingProxyType(
    {
        "sglang": Sglang(),
        "vllm": Vllm(),
        "llama.cpp": LlamaCpp(),
    }
)


def engine_for(kind: EngineKind) -> Engine:
    """The engine of a rig."""
    return ENGINES[kind]
