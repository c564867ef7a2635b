"""What the ssh config files say about one host, and the keys to offer there."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from specdash.core.errors import UnreachableError
from specdash.hosts.ssh_target import Target
from specdash.hosts.ssh_trust import Trust, load_trust

# The order in which OpenSSH offers them.
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")

_REMEDIES = (
    ("Extra data at end", "OpenSSH takes a comment only on a line of its own; move it there."),
    ("No closing quotation", "Close the quotation mark, or take the apostrophe out of the line."),
    ("integer value", "Write a plain number there (seconds without a unit)."),
    ("Invalid match condition", "Take this Match line out, or name another file with -F."),
    ("environment expansion", "Set the variable, or write the path out."),
)


class SshConfigError(UnreachableError):
    """An ssh config file cannot be used."""

    default_code = "ssh-config"


@dataclass(frozen=True, slots=True)
class Identities:
    """The keys to offer. ``encrypted`` files need a passphrase first."""

    keypairs: tuple[asyncssh.SSHKeyPair, ...]
    files: tuple[str, ...]
    encrypted: tuple[Path, ...]
    problems: tuple[str, ...]
    agent_path: str
    agent_only: tuple[bytes, ...] | None

    def tried(self) -> str:
        """The keys in words."""
        parts = list(self.files)
        if self.agent_path:
            parts.append("the agent's keys")
        return ", ".join(parts) if parts else "no key"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A target as the config files resolve it."""

    target: Target
    files: tuple[Path, ...]
    host: str
    user: str
    port: int
    alias: str
    jumps: tuple[str, ...]
    trust: Trust
    identities: Identities

    @property
    def label(self) -> str:
        """``user@host``, with the port where it is not 22."""
        port = None if self.port == asyncssh.DEFAULT_PORT else self.port
        return str(Target(self.host, self.user, port))


async def resolve(target: Target, files: tuple[Path, ...] | None) -> Resolved:
    """Read the config files (in a thread: ``Match exec`` runs programs) and the key files.

    Raises SshConfigError that names file and line.
    """
    paths = _config_files(files)
    try:
        options = await asyncssh.SSHClientConnectionOptions.construct(
            None,
            config=list(paths),
            host=target.host,
            port=() if target.port is None else target.port,
            username=() if target.user is None else target.user,
            client_keys=None,
            known_hosts=b"",
            x509_trusted_certs=None,
        )
    except (ValueError, OSError, asyncssh.Error) as error:
        raise _config_error(error, paths) from error
    config = options.config
    jump = config.get("ProxyJump")
    host = str(options.host)
    return Resolved(
        target=target,
        files=paths,
        host=host,
        user=str(options.username),
        port=int(options.port),
        alias=str(options.host_key_alias or host),
        jumps=tuple(part.strip() for part in str(jump).split(",")) if jump else (),
        trust=await asyncio.to_thread(
            load_trust,
            _strings(config.get("UserKnownHostsFile")),
            _strings(config.get("GlobalKnownHostsFile")),
        ),
        identities=await asyncio.to_thread(
            _load_identities,
            _strings(config.get("IdentityFile")),
            _strings(config.get("CertificateFile")) or [],
            bool(config.get("IdentitiesOnly")),
            _agent_path(config.get("IdentityAgent", "SSH_AUTH_SOCK")),
        ),
    )


def _config_files(files: tuple[Path, ...] | None) -> tuple[Path, ...]:
    if files is not None:
        for path in files:
            if not path.is_file():
                raise SshConfigError(
                    f"the ssh config file {path} does not exist",
                    remedy="Check the path given with -F.",
                )
        return files
    usual = Path("~/.ssh/config").expanduser()
    return (usual,) if usual.is_file() else ()


def _config_error(error: Exception, paths: tuple[Path, ...]) -> SshConfigError:
    text = str(error)
    named = ", ".join(str(path) for path in paths) or "the ssh options"
    where = "" if re.search(r" line \d+: ", text) else f"{named}: "
    remedy = next((hint for part, hint in _REMEDIES if part in text), "")
    return SshConfigError(
        f"the ssh config cannot be used: {where}{text}",
        remedy=remedy or "Correct that line, or name another config file with -F.",
    )


def _strings(value: object) -> list[str] | None:
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value]
    return None


def _agent_path(configured: object) -> str:
    if configured is None:  # IdentityAgent none
        return ""
    text = str(configured)
    if text == "SSH_AUTH_SOCK":
        text = os.environ.get("SSH_AUTH_SOCK", "")
    elif text.startswith("$"):
        text = os.environ.get(text.lstrip("$").strip("{}"), "")
    path = Path(text).expanduser() if text else None
    return str(path) if path is not None and path.exists() else ""


def _load_identities(
    configured: list[str] | None, certificates: Sequence[str], only: bool, agent_path: str
) -> Identities:
    chosen = configured
    if chosen is None:
        chosen = [f"~/.ssh/{name}" for name in _DEFAULT_KEYS]
    keypairs: list[asyncssh.SSHKeyPair] = []
    files: list[str] = []
    encrypted: list[Path] = []
    problems: list[str] = []
    public: list[bytes] = []
    existing = [path for path in map(_expand, certificates) if path.is_file()]
    for name in chosen:
        path = _expand(name)
        if not path.is_file():
            if configured is not None and not _beside(path, ".pub").is_file():
                problems.append(f"{name} does not exist")
                continue
        else:
            try:
                loaded = asyncssh.load_keypairs(path, None, [str(item) for item in existing])
            except asyncssh.KeyImportError as error:
                if "assphrase" in str(error):
                    encrypted.append(path)
                elif not _public_blob(path):
                    problems.append(f"{name}: {error}")
            except (OSError, ValueError) as error:
                problems.append(f"{name}: {error}")
            else:
                keypairs.extend(loaded)
                files.append(str(path))
                public.extend(pair.public_data for pair in loaded)
        public.extend(_public_blob(path) + _public_blob(_beside(path, ".pub")))
    if only and not public:
        agent_path = ""  # an empty list of identities would mean all of them
    return Identities(
        keypairs=tuple(keypairs),
        files=tuple(files),
        encrypted=tuple(encrypted),
        problems=tuple(problems),
        agent_path=agent_path,
        agent_only=tuple(public) if only else None,
    )


def _expand(name: str) -> Path:
    return Path(name).expanduser()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _public_blob(path: Path) -> list[bytes]:
    try:
        return [asyncssh.read_public_key(path).public_data]
    except (OSError, asyncssh.KeyImportError):
        return []
