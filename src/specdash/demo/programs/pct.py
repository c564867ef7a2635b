"""``pct`` of the box: Proxmox's container tool, with one container."""

from __future__ import annotations

from specdash.demo.programs.call import CONTAINER_HOST, CONTAINER_ID, Call


async def pct(call: Call) -> int:
    """``exec``, ``status``, ``list`` and ``config``; argv of ``exec`` passes without a shell."""
    words = call.argv
    verb = words[0] if words else ""
    if verb == "list":
        await call.out("VMID       Status     Lock         Name\n")
        await call.out(f"{CONTAINER_ID:<10} running                 {CONTAINER_HOST}\n")
        return 0
    if verb not in ("exec", "status", "config", "enter"):
        return await call.fail(255, f"ERROR: unknown command 'pct {verb}'")
    rest = words[1:]
    if not rest:
        return await call.fail(255, "400 not enough arguments")
    vmid, rest = rest[0], rest[1:]
    if not vmid.isdigit():
        return await call.fail(
            255,
            "400 Parameter verification failed.\n"
            f"vmid: type check ('integer') failed - got '{vmid}'",
        )
    if vmid != CONTAINER_ID:
        return await call.fail(
            2, f"Configuration file 'nodes/pve-node/lxc/{vmid}.conf' does not exist"
        )
    if verb == "status":
        await call.out("status: running\n")
        return 0
    if verb == "config":
        await call.out(f"arch: amd64\nhostname: {CONTAINER_HOST}\nunprivileged: 0\n")
        return 0
    while rest[:1] and rest[0] in ("--keep-env", "-keep-env"):
        rest = rest[2:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if verb == "enter" or not rest:
        return await call.fail(255, "400 not enough arguments")
    await call.output.replace(call.world.bin_paths["ct"], str(call.world.root / "home"), rest)
    return 0
