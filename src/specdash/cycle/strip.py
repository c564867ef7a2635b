"""Which running containers a reload of systemd would take the GPUs from.

With runc and the systemd cgroup driver, `systemctl daemon-reload` re-applies device rules that do
not know of the GPUs the NVIDIA runtime passed in (NVIDIA/nvidia-container-toolkit issues 48, 251,
1227): every running GPU container then says "Failed to initialize NVML: Unknown Error" until it is
made anew.
"""

from __future__ import annotations

import json

from specdash.hosts.protocol import Host

_FORMAT = '{"name":{{json .Name}},"runtime":{{json .HostConfig.Runtime}},"devices":{{json .HostConfig.DeviceRequests}}}'


async def containers_at_risk(host: Host) -> tuple[str, ...]:
    """Names of running Docker containers with GPUs on ``host``; () where there is no Docker."""
    listed = await host.run(["docker", "ps", "--quiet", "--no-trunc"])
    ids = listed.stdout.decode("ascii", "replace").split()
    if not listed.ok or not ids:
        return ()
    driver = await host.run(["docker", "info", "--format", "{{.CgroupDriver}}"])
    if driver.ok and driver.stdout.strip() != b"systemd":
        return ()
    told = await host.run(["docker", "inspect", "--format", _FORMAT, *ids])
    return tuple(filter(None, map(_gpu_name, told.stdout.splitlines())))


def needs_reload(config_path: str) -> bool:
    """Whether editing this file makes systemd want a reload: units and their drop-ins do."""
    return config_path.endswith(".service") or (
        config_path.endswith(".conf") and ".d/" in config_path
    )


def _gpu_name(line: bytes) -> str:
    try:
        body = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(body, dict):
        return ""
    has_gpus = body.get("runtime") == "nvidia" or bool(body.get("devices"))
    return str(body.get("name", "")).lstrip("/") if has_gpus else ""
