"""The files of a box: programs on PATH, the model directories, the unit, keys, SSH config, rig.

Everything lies under one temporary directory::

    demo.toml ssh_config known_hosts id_ed25519 faults
    bin/{svc,node,ct}/      programs and links to ordinary tools
    etc/systemd/system/     the unit (the rig's launch config) and its drop-ins
    opt/sglang/             what the unit's ExecStart runs
    models/                 where its flags point
    run/                    inner sockets; names for worker processes
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import asyncssh

import specdash
from specdash.demo.programs import client as client_module
from specdash.demo.programs.table import ON_HOST, TOOLS
from specdash.rig.schema import (
    BenchSpec,
    CleanSpec,
    ConfigSpec,
    EngineSpec,
    GpusSpec,
    HostSpec,
    LimitsSpec,
    Rig,
    ServiceSpec,
)

UNIT = "sglang-qwen.service"
MODEL = "Qwen3.5-122B-A10B-FP8"
DRAFT = "Qwen3.5-122B-A10B-EAGLE3"
SERVED_NAME = "qwen3.5-122b-a10b"
RIG_NAME = "demo"
HOSTS = ("svc", "node")
PORTS = range(18000, 31000)
"""Below every system's ephemeral range, so that no client's own port can take the engine's."""


def real_python() -> str:
    """The interpreter behind a virtual environment: it starts faster."""
    return os.path.realpath(sys.executable)


def free_port() -> int:
    """A loopback port nobody listens on now."""
    chance = random.SystemRandom()
    for _ in range(200):
        port = chance.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port on 127.0.0.1 between 18000 and 31000")


def unit_path(root: Path) -> Path:
    return root / "etc/systemd/system" / UNIT


def bin_path(root: Path, host: str) -> str:
    return str(root / "bin" / host)


def build(root: Path, *, port: int, steps: int) -> None:
    """Make the directories and every file but keys, SSH config and rig."""
    for name in ("run", "home", "etc/systemd/system", "opt/sglang/bin", "opt/sglang/sglang"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "run").chmod(0o700)
    (root / "tmp").mkdir(exist_ok=True)
    _worker_program(root)
    for host, programs in ON_HOST.items():
        _programs(root, host, programs)
    _engine(root)
    for name, architecture in ((MODEL, "Qwen3_5MoeForCausalLM"), (DRAFT, "LlamaForCausalLMEagle3")):
        folder = root / "models" / name
        folder.mkdir(parents=True)
        config = {"architectures": [architecture], "simulated": True}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    path = unit_path(root)
    path.write_text(unit_text(root, port=port, steps=steps), encoding="utf-8")
    path.chmod(0o644)


def _programs(root: Path, host: str, programs: tuple[str, ...]) -> None:
    folder = root / "bin" / host
    folder.mkdir(parents=True)
    start = shlex.join([real_python(), "-I", "-S", "-E", str(client_module.__file__)])
    calls = shlex.quote(str(root / "run/c"))
    for name in programs:
        path = folder / name
        path.write_text(
            f'#!/bin/sh\nexec {start} {calls} {"svc" if host == "ct" else host} {name} "$@"\n',
            encoding="utf-8",
        )
        path.chmod(0o755)
    for name in TOOLS:
        found = shutil.which(name)
        if found is not None and name not in programs:
            (folder / name).symlink_to(found)


def _worker_program(root: Path) -> None:
    """What worker processes really are: ``cat``, or where that is one of a multi-call program's
    names and refuses to be called otherwise, Python waiting for the end of its stdin."""
    link = root / "run/worker"
    link.symlink_to(shutil.which("cat") or real_python())
    probe = subprocess.run(
        ["sglang::probe"],
        executable=str(link),
        stdin=subprocess.DEVNULL,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if probe.returncode:
        link.unlink()
        link.symlink_to(real_python())


def _engine(root: Path) -> None:
    """A ``python -m sglang.launch_server`` that leads to the box's engine."""
    python = root / "opt/sglang/bin/python"
    python.symlink_to(real_python())
    package = root / "opt/sglang/sglang"
    (package / "__init__.py").write_text("", encoding="utf-8")
    source = Path(specdash.__file__).resolve().parents[1]
    (package / "launch_server.py").write_text(
        "import sys\n"
        f"sys.path.append({str(source)!r})\n"
        "from specdash.demo.engine.main import main\n"
        "main(sys.argv[1:])\n",
        encoding="utf-8",
    )


def engine_env(root: Path, speed: float) -> dict[str, str]:
    """The environment the supervisor gives every unit."""
    return {
        "PATH": bin_path(root, "ct"),
        "HOME": str(root / "home"),
        "LANG": "C.UTF-8",
        "PYTHONHOME": os.pathsep.join((sys.base_prefix, sys.base_exec_prefix))
        if sys.base_prefix != sys.base_exec_prefix
        else sys.base_prefix,
        "PYTHONPATH": str(root / "opt/sglang"),
        "SPECDASH_BOX": str(root),
        "SPECDASH_BOX_SPEED": repr(speed),
    }


def shell_env(root: Path, host: str) -> dict[str, str]:
    """The environment of a command that comes in over SSH."""
    return {
        "PATH": bin_path(root, host),
        "HOME": str(root / "home"),
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": str(root / "tmp"),
    }


def unit_text(root: Path, *, port: int, steps: int) -> str:
    """The unit as an operator would have written it."""
    speculation = (
        [
            "--speculative-algorithm EAGLE3",
            f"--speculative-draft-model-path {root}/models/{DRAFT}",
            f"--speculative-num-steps {steps}",
            "--speculative-eagle-topk 1",
            f"--speculative-num-draft-tokens {steps + 1}",
        ]
        if steps
        else []
    )
    flags = [
        f"--model-path {root}/models/{MODEL}",
        f"--served-model-name {SERVED_NAME}",
        "--host 127.0.0.1",
        f"--port {port}",
        "--tp 4",
        "--context-length 131072",
        "--mem-fraction-static 0.85",
        "--reasoning-parser qwen3",
        "--enable-metrics",
        *speculation,
    ]
    command = " \\\n    ".join([f"{root}/opt/sglang/bin/python -m sglang.launch_server", *flags])
    return f"""\
[Unit]
Description=SGLang Qwen3.5-122B-A10B (SIMULATED: specdash rig in a box)
After=network-online.target
StartLimitIntervalSec=60
StartLimitBurst=4

[Service]
Type=simple
WorkingDirectory={root}/opt/sglang
Environment=CUDA_DEVICE_ORDER=PCI_BUS_ID NCCL_P2P_LEVEL=SYS
# Tuned for one request at a time; see the results before changing the depth.
ExecStart={command}
Restart=on-failure
RestartSec=3
KillMode=mixed
TimeoutStopSec=30

[Install]
WantedBy=multi-user.target
"""


def write_keys(root: Path) -> tuple[asyncssh.SSHKey, dict[str, asyncssh.SSHKey]]:
    """Make the client's key (also as a file) and one key a host."""
    client = asyncssh.generate_private_key("ssh-ed25519", comment="specdash rig in a box")
    client.write_private_key(str(root / "id_ed25519"))
    (root / "id_ed25519").chmod(0o600)
    return client, {host: asyncssh.generate_private_key("ssh-ed25519") for host in HOSTS}


def write_ssh_config(
    root: Path, ports: dict[str, int], host_keys: dict[str, asyncssh.SSHKey]
) -> Path:
    """``known_hosts`` and an SSH config with one alias a host, for asyncssh and OpenSSH alike."""
    known: list[str] = []
    blocks: list[str] = []
    for host, port in ports.items():
        public = host_keys[host].export_public_key().decode().strip()
        known.append(f"[127.0.0.1]:{port} {public}\n")
        blocks.append(
            f"Host {host}\n"
            "    HostName 127.0.0.1\n"
            f"    Port {port}\n"
            "    User root\n"
            f'    IdentityFile "{root}/id_ed25519"\n'
            "    IdentitiesOnly yes\n"
            f'    UserKnownHostsFile "{root}/known_hosts"\n'
        )
    (root / "known_hosts").write_text("".join(known), encoding="utf-8")
    path = root / "ssh_config"
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


TOP_SPEED = 100.0
"""From here on the box is for tests: its rig asks for the shortest cells that still mean something."""


def rig(root: Path, *, port: int, speed: float) -> Rig:
    """The rig in a box as the product sees it; its file says the same."""
    bench = (
        BenchSpec(concurrency=(1, 4, 16), output_tokens=128, budget_s=4.0)
        if speed < TOP_SPEED
        else BenchSpec(concurrency=(1, 4, 16), output_tokens=64, budget_s=1.0)
    )
    return Rig(
        name=RIG_NAME,
        path=root / "demo.toml",
        hosts={
            "svc": HostSpec("svc", ssh="svc"),
            "node": HostSpec("node", ssh="node"),
            "ct": HostSpec("ct", via="node", enter="pct:129"),
        },
        service=ServiceSpec("svc", "systemd", UNIT),
        config=ConfigSpec("svc", str(unit_path(root))),
        engine=EngineSpec("sglang", f"http://127.0.0.1:{port}"),
        gpus=GpusSpec("node"),
        clean=CleanSpec(hosts=("svc", "ct")),
        bench=bench,
        limits=LimitsSpec(stop_s=45.0, grace_s=5.0, free_s=20.0, load_s=60.0),
        simulated=True,
    )


def write_rig(root: Path, *, port: int, speed: float) -> Path:
    """The rig file, in the words of the contract."""
    box = rig(root, port=port, speed=speed)
    quote = json.dumps  # a JSON string is a TOML basic string
    bench, limits = box.bench, box.limits
    path = root / "demo.toml"
    path.write_text(
        f"""\
# The rig in a box: SIMULATED. Use it with: -F {root}/ssh_config
[hosts.svc]
ssh = "svc"

[hosts.node]
ssh = "node"

[hosts.ct]
via = "node"
enter = "pct:129"

[service]
host = "svc"
kind = "systemd"
unit = "{UNIT}"

[config]
host = "svc"
path = {quote(str(unit_path(root)))}

[engine]
kind = "sglang"
url = "{box.engine.url}"

[gpus]
host = "node"

[clean]
hosts = ["svc", "ct"]

[bench]
concurrency = {list(bench.concurrency)}
output_tokens = {bench.output_tokens}
budget_s = {bench.budget_s}

[limits]
stop_s = {limits.stop_s}
grace_s = {limits.grace_s}
free_s = {limits.free_s}
load_s = {limits.load_s}
""",
        encoding="utf-8",
    )
    return path
