"""What the words without a verb mean: nothing, a rig, a host, or a mistake."""

from __future__ import annotations

from pathlib import Path

from specdash import __version__
from specdash.cli.output import Out
from specdash.core.errors import EXIT_OK, UsageError


def open_without_verb(words: list[str], out: Out) -> int:
    """``specdash``, ``specdash --help``, ``specdash --version`` and ``specdash RIG``."""
    from specdash.cli.main import VERBS

    if "--help" in words or "-h" in words:
        out.page(usage(VERBS))
        return EXIT_OK
    if "--version" in words:
        out.page(f"specdash {__version__}\n")
        return EXIT_OK
    rig, extra, ssh_config = _split(words)
    return _cockpit(rig, extra, ssh_config, out)


def usage(verbs: dict[str, str]) -> str:
    """The text of ``specdash --help``."""
    lines = [
        "usage: specdash [RIG] [-F FILE]   the cockpit on a rig",
        "       specdash VERB ...          see specdash VERB --help",
        "       specdash --version",
        "",
        "Find the right speculation depth of a deployed LLM server.",
        "",
        "verbs:",
        *(f"  {verb:8} {text}" for verb, text in verbs.items()),
        "",
        "Start with `specdash demo`: the cockpit on a simulated rig, nothing to set up.",
        "RIG is a name from the rigs directory (~/.config/specdash/rigs), the path of a rig file,",
        "or demo. Without it: default.toml, or the only rig there is.",
        "-F FILE, --ssh-config FILE: ssh config to use instead of ~/.ssh/config.",
        "",
        "Exit codes: 0 done, 1 the work failed, 2 usage, 3 unreachable, 4 refused, 130 interrupted.",
    ]
    return "\n".join(lines) + "\n"


def _split(words: list[str]) -> tuple[str | None, list[str], list[Path]]:
    rig: str | None = None
    extra: list[str] = []
    ssh_config: list[Path] = []
    rest = [word for word in words if word not in ("--json", "--jsonl")]
    while rest:
        word = rest.pop(0)
        if word in ("-F", "--ssh-config"):
            if not rest:
                raise UsageError(f"{word} needs a file.", remedy="See `specdash --help`.")
            ssh_config.append(Path(rest.pop(0)))
        elif word.startswith("--ssh-config="):
            ssh_config.append(Path(word.partition("=")[2]))
        elif word.startswith("-F"):
            ssh_config.append(Path(word[2:]))
        elif word.startswith("-"):
            if rig is None:
                raise UsageError(f"Unknown option {word}.", remedy="See `specdash --help`.")
            extra.append(word)
        elif rig is None:
            rig = word
        else:
            extra.append(word)
    return rig, extra, ssh_config


def _cockpit(word: str | None, extra: list[str], ssh_config: list[Path], out: Out) -> int:
    from specdash.cli.cockpit import open_cockpit
    from specdash.cli.main import VERBS
    from specdash.cli.resolve import DEMO, default_rig, rig_named, unknown_rig, user_places

    where = user_places()
    if word is None:
        word = default_rig(where)
    if word != DEMO:
        try:
            rig_named(word, where)
        except UsageError as error:
            if error.code == "unknown-rig":
                raise unknown_rig(word, where, tuple(VERBS)) from None
            raise
    if extra:
        raise UsageError(
            f"Too many words behind {word}: {' '.join(extra)}.", remedy="See `specdash --help`."
        )
    return open_cockpit(word, ssh_config, out)
