"""The flag tables hold together."""

from __future__ import annotations

import pytest

from specdash.engines.knobs import SGLANG, TABLES
from specdash.engines.registry import ENGINES, engine_for
from specdash.launch.knobs import KnobTable

TABLE_LIST = list(TABLES.values())


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda table: table.engine)
def test_no_spelling_stands_for_two_things(table: KnobTable) -> None:
    spellings = [name for flag in table.flags for name in flag.spellings] + list(table.extras)
    assert len(spellings) == len(set(spellings))
    assert all(name.startswith("-") for name in spellings)


@pytest.mark.parametrize("table", TABLE_LIST, ids=lambda table: table.engine)
def test_every_engine_has_a_depth_and_switches_are_extras(table: KnobTable) -> None:
    assert table.flag("num_steps") is not None
    assert set(table.switches) <= set(table.extras)


@pytest.mark.parametrize("kind", list(ENGINES))
def test_engines_carry_their_own_table(kind: str) -> None:
    engine = ENGINES[kind]  # type: ignore[index]
    assert engine.kind == kind
    assert engine.knobs is TABLES[kind]  # type: ignore[index]
    assert engine.has_topk is (engine.knobs.flag("eagle_topk") is not None)
    assert engine_for(engine.kind) is engine


def test_the_prefix_that_people_write_is_unique() -> None:
    spellings = [name for flag in SGLANG.flags for name in flag.spellings] + list(SGLANG.extras)
    assert [name for name in spellings if name.startswith("--speculative-algo")] == [
        "--speculative-algorithm"
    ]
