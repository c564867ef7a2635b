"""The supervisors specdash knows, one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from specdash.core.errors import UsageError
from specdash.hosts.protocol import Host
from specdash.rig.schema import ServiceKind, ServiceSpec
from specdash.services.protocol import Service
from specdash.services.systemd import Systemd

SERVICES: Mapping[ServiceKind, Callable[[Host, str], Service]] = MappingProxyType(
    {
        "systemd": Systemd,
    }
)


def service_for(spec: ServiceSpec, host: Host) -> Service:
    """The service of a rig. Raises UsageError for a kind that is not supported yet."""
    make = SERVICES.get(spec.kind)
    if make is None:
        raise UsageError(
            f"Services of the kind {spec.kind!r} are not supported yet.",
            remedy=f"Supported: {', '.join(SERVICES)}.",
            code="unsupported-service",
        )
    return make(host, spec.unit)
