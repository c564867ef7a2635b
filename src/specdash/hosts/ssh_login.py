"""One login: whom asyncssh asks, and what went wrong in the operator's words."""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import os
import re
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh

from specdash.core.errors import UnreachableError
from specdash.core.text import make_safe
from specdash.hosts.options import AskSecret, SecretKind, SecretQuestion, SecretStore
from specdash.hosts.ssh_config import Resolved

_ATTEMPTS = 3


class NameNotResolvedError(UnreachableError):
    default_code = "name-not-resolved"


class ConnectionRefusedByHostError(UnreachableError):
    default_code = "connection-refused"


class ConnectTimedOutError(UnreachableError):
    default_code = "connect-timed-out"


class LoginDeniedError(UnreachableError):
    default_code = "permission-denied"


class KeyEncryptedError(UnreachableError):
    default_code = "key-encrypted"


class NotAnSshServerError(UnreachableError):
    default_code = "ssh-protocol"


class Login(asyncssh.SSHClient):
    """The callbacks of one login attempt."""

    def __init__(
        self,
        name: str,
        resolved: Resolved,
        ask: AskSecret | None,
        store: SecretStore,
        deadline: asyncio.Timeout,
        timeout_s: float,
    ) -> None:
        self._name = name
        self._to = resolved
        self._ask = ask
        self._store = store
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._encrypted = deque(resolved.identities.encrypted)
        self._passwords = 0
        self._offered: str | None = None
        self.locked_keys: list[Path] = []
        self.lost = False
        self.lost_because: Exception | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.lost_because = exc

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self._to.trust.presented = key
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self._to.trust.presented_authority = key
        return False

    async def public_key_auth_requested(self) -> Any:
        while self._encrypted:
            path = self._encrypted.popleft()
            key = await self._unlock(path)
            if key is not None:
                return [key]
        return None

    async def password_auth_requested(self) -> str | None:
        return await self._password(f"{self._to.label}'s password:")

    def kbdint_auth_requested(self) -> str | None:
        known = self._store.get("password", self._to.label, self._name) is not None
        return "" if self._ask is not None or known else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Any
    ) -> list[str] | None:
        answers: list[str] = []
        for prompt, echo in prompts:
            if not echo and "password" in prompt.lower():
                answer = await self._password(prompt)
            else:
                answer = await self._put(
                    SecretQuestion(
                        "answer", self._name, self._to.label, make_safe(prompt), echo=echo
                    )
                )
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def _password(self, prompt: str) -> str | None:
        subject = self._to.label
        if self._passwords:
            self._store.refuse("password", subject, self._offered)
        self._passwords += 1
        if self._passwords > _ATTEMPTS:
            return None
        self._offered = await self._asked("password", subject, prompt, self._passwords)
        return self._offered

    async def _unlock(self, path: Path) -> asyncssh.SSHKey | None:
        subject = str(path)
        if not self._can_unlock(path):
            self.locked_keys.append(path)
            return None
        for attempt in range(1, _ATTEMPTS + 1):
            prompt = f"Passphrase for {subject}:"
            passphrase = await self._asked("passphrase", subject, prompt, attempt)
            if passphrase is None:
                break
            try:
                return await asyncio.to_thread(asyncssh.read_private_key, path, passphrase)
            except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                self._store.refuse("passphrase", subject, passphrase)
        self.locked_keys.append(path)
        return None

    def _can_unlock(self, path: Path) -> bool:
        # What ssh-keygen writes needs bcrypt, which asyncssh only has where it is installed.
        openssh = path.read_bytes().startswith(b"-----BEGIN OPENSSH")
        return not openssh or importlib.util.find_spec("bcrypt") is not None

    async def _asked(self, kind: SecretKind, subject: str, prompt: str, attempt: int) -> str | None:
        """What is known for this subject by now, else what the operator types."""
        with self._a_persons_time():
            async with self._store.turn(kind, subject):
                known = self._store.get(kind, subject, self._name)
                if known is not None:
                    return known
                secret = await self._put(
                    SecretQuestion(kind, self._name, subject, make_safe(prompt), attempt)
                )
                if secret is not None:
                    self._store.keep(kind, subject, secret)
                return secret

    async def _put(self, question: SecretQuestion) -> str | None:
        if self._ask is None:
            return None
        with self._a_persons_time():
            return await self._ask(question)

    @contextmanager
    def _a_persons_time(self) -> Iterator[None]:
        """The time a person takes to answer is not the host's."""
        self._deadline.reschedule(None)
        try:
            yield
        finally:
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._timeout_s)


def login_error(
    error: Exception, to: Resolved, login: Login | None, timeout_s: float
) -> UnreachableError:
    """``error`` of a failed connection, as one sentence with a remedy."""
    label = to.label
    if isinstance(error, UnreachableError):
        return error
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return to.trust.refusal(label, to.alias, to.port, error.reason)
    if isinstance(error, asyncssh.PermissionDenied):
        return _denied(error, to, login)
    if isinstance(error, socket.gaierror):
        return NameNotResolvedError(
            f"the name {to.host} cannot be resolved: {error.strerror}",
            remedy="Check the spelling, the HostName in the ssh config and the DNS or VPN.",
        )
    if isinstance(error, TimeoutError):
        return ConnectTimedOutError(
            f"{label} did not answer within {timeout_s:g} s",
            remedy="Check that the machine is up and that no firewall drops the port.",
        )
    if isinstance(error, asyncssh.ChannelOpenError):
        return UnreachableError(
            f"the jump host cannot reach {label}: {make_safe(error.reason)}",
            remedy="Check the name and port as the jump host sees them.",
            code="jump-failed",
        )
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return UnreachableError(
            f"{label} and specdash have no algorithm in common: {make_safe(error.reason)}",
            remedy="Check Ciphers, MACs, KexAlgorithms and HostKeyAlgorithms in the ssh config.",
            code="no-common-algorithm",
        )
    if isinstance(error, (asyncssh.Error, ConnectionResetError, BrokenPipeError)):
        return NotAnSshServerError(
            f"{label} ended the SSH connection: {make_safe(str(error))}",
            remedy="Check that an SSH server listens on that port and look into its log.",
        )
    if isinstance(error, OSError):
        return _os_error(error, label)
    return UnreachableError(f"no connection to {label}: {make_safe(str(error))}")


def _denied(
    error: asyncssh.PermissionDenied, to: Resolved, login: Login | None
) -> UnreachableError:
    locked = [] if login is None else login.locked_keys
    ids = to.identities
    if locked:
        return KeyEncryptedError(
            f"{to.label} did not let {to.user} in, and the key {locked[0]} needs its passphrase",
            remedy=f"Load the key with `ssh-add {locked[0]}`, or give the passphrase when asked "
            "(a key that ssh-keygen encrypted needs the Python package bcrypt for that).",
            evidence=(f"keys tried: {ids.tried()}", *ids.problems),
        )
    return LoginDeniedError(
        f"{to.label} does not let user {to.user} in (keys tried: {ids.tried()})",
        remedy=f"Check the user name, or add your public key with `ssh-copy-id {to.target}`.",
        evidence=(make_safe(error.reason), *ids.problems),
    )


def _os_error(error: OSError, label: str) -> UnreachableError:
    number = error.errno
    if number is None:
        # asyncio joins the failures of several addresses into one text.
        numbers = {int(found) for found in re.findall(r"\[Errno (\d+)\]", str(error))}
        number = numbers.pop() if len(numbers) == 1 else None
    if number == errno.ECONNREFUSED:
        return ConnectionRefusedByHostError(
            f"{label} refused the connection",
            remedy="Check that the SSH server runs there and listens on that port.",
        )
    reason = os.strerror(number) if number else make_safe(str(error))
    return UnreachableError(
        f"no connection to {label}: {reason}",
        remedy="Check the network, the VPN and the address.",
        code="no-route" if number in (errno.EHOSTUNREACH, errno.ENETUNREACH) else "unreachable",
    )
