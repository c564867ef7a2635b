"""Whether an engine runs what was asked, from what it reports."""

from __future__ import annotations

from specdash.core.settings import Settings


def is_off(settings: Settings) -> bool | None:
    """True off, False on, None where the settings do not say."""
    if settings.enabled is False or settings.num_steps == 0:
        return True
    if settings.enabled is True or settings.num_steps is not None:
        return False
    return None


def difference(asked: Settings, resolved: Settings, word: str) -> str:
    """ "" where nothing that is known on both sides differs, else one sentence.

    A field that either side leaves None is not compared.
    """
    want_off, runs_off = is_off(asked), is_off(resolved)
    if want_off is None or runs_off is None:
        return _numbers(asked, resolved, word)
    if want_off and not runs_off:
        return f"Speculation was to be off, but the engine speculates ({resolved.short()})."
    if runs_off and not want_off:
        return (
            f"Speculation was to be on ({asked.short()}), but the engine runs without it; "
            "it dropped or never saw the settings."
        )
    return "" if want_off else _numbers(asked, resolved, word)


def _numbers(asked: Settings, resolved: Settings, word: str) -> str:
    pairs = (
        (word, asked.num_steps, resolved.num_steps),
        ("topk", asked.eagle_topk, resolved.eagle_topk),
        ("draft tokens", asked.num_draft_tokens, resolved.num_draft_tokens),
    )
    parts = [
        f"{name} {want} was asked for and {got} runs"
        for name, want, got in pairs
        if want is not None and got is not None and want != got
    ]
    return f"The engine changed the settings: {', '.join(parts)}." if parts else ""
