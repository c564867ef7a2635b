"""Launch files in the styles people write them: each is read, edited, edited back, turned off and on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from specdash.core.settings import OFF, Settings
from specdash.engines.knobs import LLAMA_CPP, SGLANG, TABLES, VLLM
from specdash.launch.detect import detect_engine
from specdash.launch.editing import edit_config
from specdash.launch.knobs import KnobTable
from specdash.launch.reading import read_config


@dataclass(frozen=True)
class Case:
    name: str
    path: str
    text: str
    short: str
    knobs: KnobTable = SGLANG
    changed_line: str = ""


CASES = [
    Case(
        "continued unit",
        "qwen.service",
        r"""
[Unit]
Description=Qwen 122B
After=network-online.target

[Service]
User=inference
Environment=CUDA_VISIBLE_DEVICES=0,1,2,3
ExecStart=/opt/sglang/bin/python -m sglang.launch_server \
    --model-path /srv/models/qwen-122b \
    --tp 4 \
    --speculative-algorithm EAGLE3 \
    --speculative-draft-model-path /srv/models/qwen-122b-eagle3 \
    --speculative-num-steps 3 \
    --speculative-eagle-topk 1 \
    --speculative-num-draft-tokens 4 \
    --host 0.0.0.0 --port 30000
Restart=on-failure
TimeoutStopSec=180
""",
        "3/1/4",
        changed_line="    --speculative-num-steps 7 \\",
    ),
    Case(
        "one long line with equals signs",
        "sgl.service",
        "[Service]\nExecStart=/usr/bin/python3 -m sglang.launch_server --model-path=/m"
        " --speculative-algo=EAGLE --speculative-num-steps=5 --speculative-eagle-topk=4"
        " --speculative-num-draft-tokens=8 --port=30001\n",
        "5/4/8",
    ),
    Case(
        "comments between the lines of a command",
        "sgl.service",
        "[Service]\nExecStart=/usr/bin/sglang serve --model-path /m \\\n"
        "# --speculative-num-steps 9 \\\n"
        "  --speculative-algorithm EAGLE3 \\\n"
        "  ; tried 5, slower\n"
        "  --speculative-num-steps 3 --speculative-eagle-topk 1 \\\n"
        "  --speculative-num-draft-tokens 4\n",
        "3/1/4",
    ),
    Case(
        "drop-in that resets",
        "/etc/systemd/system/sgl.service.d/50-spec.conf",
        "# local\n[Service]\nExecStart=\nExecStart=-/opt/v/bin/python -m sglang.launch_server"
        ' --model-path "/srv/my models/m" --speculative-algorithm NEXTN'
        " --speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2",
        "1/1/2",
    ),
    Case(
        "several resets, the last command counts",
        "sgl.service",
        "[Service]\nExecStart=/opt/python -m sglang.launch_server --speculative-num-steps 2\n"
        "ExecStart=\nExecStart=/opt/python -m sglang.launch_server --model-path /m"
        " --speculative-algorithm EAGLE3 --speculative-num-steps 4 --speculative-eagle-topk 1"
        " --speculative-num-draft-tokens 5\n",
        "4/1/5",
    ),
    Case(
        "variables in the unit",
        "sgl.service",
        '[Service]\nEnvironment="STEPS=3" TOPK=1\nEnvironment=DRAFT=4\n'
        "ExecStart=/opt/python -m sglang.launch_server --model-path /m"
        " --speculative-algorithm EAGLE3 --speculative-num-steps ${STEPS}"
        " --speculative-eagle-topk $TOPK --speculative-num-draft-tokens=${DRAFT}\n",
        "3/1/4",
        changed_line='Environment="STEPS=7" TOPK=1',
    ),
    Case(
        "a variable that splits",
        "sgl.service",
        '[Service]\nEnvironment="SPEC=--speculative-algorithm EAGLE3 --speculative-num-steps 3'
        ' --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"\n'
        "ExecStart=/opt/python -m sglang.launch_server --model-path /m $SPEC --port 1\n",
        "3/1/4",
    ),
    Case(
        "shell inside a unit",
        "sgl.service",
        "[Service]\nExecStart=/bin/bash -lc 'source /opt/venv/bin/activate && exec python -m"
        " sglang.launch_server --model-path /m --speculative-algorithm EAGLE3"
        " --speculative-num-steps 3 --speculative-eagle-topk 1"
        " --speculative-num-draft-tokens 4 >> /var/log/sgl.log 2>&1'\n",
        "3/1/4",
    ),
    Case(
        "percent and dollar in a unit",
        "sgl.service",
        "[Service]\nExecStart=/usr/bin/env A=50%% python -m sglang.launch_server --price $$5"
        " --model-path /srv/%i --speculative-algorithm EAGLE3 --speculative-num-steps 3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\n",
        "3/1/4",
    ),
    Case(
        "a flag after the comment sign is an argument",
        "sgl.service",
        "[Service]\nExecStart=/opt/python -m sglang.launch_server --speculative-algorithm EAGLE3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
        " --speculative-num-steps 3 # was --speculative-num-steps 5\n",
        "5/1/4",
    ),
    Case(
        "windows line ends",
        "sgl.service",
        "[Service]\r\nExecStart=/opt/python -m sglang.launch_server \\\r\n"
        "  --speculative-algorithm EAGLE3 \\\r\n  --speculative-num-steps 3 \\\r\n"
        "  --speculative-eagle-topk 1 \\\r\n  --speculative-num-draft-tokens 4\r\n",
        "3/1/4",
    ),
    Case(
        "environment file with one variable",
        "/etc/default/sglang",
        "# sglang\nMODEL=/m\nEXTRA_ARGS='--tp 4 --speculative-algorithm EAGLE3"
        " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4'\n",
        "3/1/4",
    ),
    Case(
        "environment file without quotes",
        "sglang.env",
        "SPEC_ARGS=--speculative-algorithm EAGLE3 --speculative-num-steps 3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\nPORT=1",
        "3/1/4",
    ),
    Case(
        "environment file continued",
        "sglang.env",
        'SPEC_ARGS="--speculative-algorithm EAGLE3 \\\n  --speculative-num-steps 3 \\\n'
        '  --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"\n',
        "3/1/4",
    ),
    Case(
        "plain script",
        "run.sh",
        "#!/bin/sh\nexec python3 -m sglang.launch_server \\\n  --model-path /m \\\n"
        "  --speculative-algorithm EAGLE3 \\\n  --speculative-num-steps 3 \\\n"
        "  --speculative-eagle-topk 1 \\\n  --speculative-num-draft-tokens 4\n",
        "3/1/4",
    ),
    Case(
        "script with defaults",
        "run.sh",
        "#!/usr/bin/env bash\nset -euo pipefail\nMODEL=${1:-/m}\nSTEPS=${STEPS:-3}\n"
        ': "${TOPK:=1}"\n'
        'python3 -m sglang.launch_server --model-path "$MODEL" --speculative-algorithm EAGLE3'
        ' --speculative-num-steps "$STEPS" --speculative-eagle-topk "${TOPK}"'
        ' --speculative-num-draft-tokens "${DRAFT:-4}"\n',
        "3/1/4",
        changed_line="STEPS=${STEPS:-7}",
    ),
    Case(
        "script with an array",
        "run.sh",
        "#!/bin/bash\nargs=(\n  --model-path /m\n  # speculation\n"
        "  --speculative-algorithm EAGLE3\n  --speculative-num-steps 3 # chain\n"
        "  --speculative-eagle-topk 1\n  --speculative-num-draft-tokens 4\n)\n"
        'args+=(--port "${PORT:-30000}")\nexec python -m sglang.launch_server "${args[@]}" "$@"\n',
        "3/1/4",
        changed_line="  --speculative-num-steps 7 # chain",
    ),
    Case(
        "array put together in a branch",
        "run.sh",
        '#!/bin/bash\nSPEC=()\nif [[ "${SPECULATE:-1}" == 1 ]]; then\n'
        "  SPEC=(--speculative-algorithm EAGLE3 --speculative-num-steps 3\n"
        "        --speculative-eagle-topk 1 --speculative-num-draft-tokens 4)\nfi\n"
        'sglang serve --model-path /m "${SPEC[@]}"\n',
        "3/1/4",
    ),
    Case(
        "string of flags in a branch",
        "run.sh",
        '#!/bin/sh\nSPEC_ARGS=""\nif [ "$SPEC" != 0 ]; then\n  SPEC_ARGS="--speculative-algorithm'
        " EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1"
        ' --speculative-num-draft-tokens 4"\nfi\n'
        "exec python -m sglang.launch_server --model-path /m $SPEC_ARGS\n",
        "3/1/4",
    ),
    Case(
        "baseline switch that empties the flags",
        "run.sh",
        '#!/bin/sh\nSPEC_ARGS="--speculative-algorithm EAGLE3 --speculative-num-steps 3'
        ' --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"\n'
        '[ "${BASELINE:-0}" = 1 ] && SPEC_ARGS=""\n'
        "exec python -m sglang.launch_server --model-path /m $SPEC_ARGS\n",
        "3/1/4",
    ),
    Case(
        "flags appended to a string",
        "run.sh",
        '#!/bin/bash\nARGS="--model-path /m"\nARGS+=" --speculative-algorithm EAGLE3"\n'
        'ARGS="$ARGS --speculative-num-steps 3 --speculative-eagle-topk 1"\n'
        'ARGS="${ARGS} --speculative-num-draft-tokens 4"\n'
        "nohup python -m sglang.launch_server $ARGS > log 2>&1 &\n",
        "3/1/4",
    ),
    Case(
        "a function that is called with flags",
        "run.sh",
        "#!/bin/bash\nserve() {\n  local steps=$1; shift\n  python -m sglang.launch_server"
        ' --model-path /m --speculative-algorithm EAGLE3 --speculative-num-steps "$steps"'
        ' --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "$@"\n}\n'
        "serve 3 --port 30000\n",
        "3/1/4",
    ),
    Case(
        "set -- and the positional arguments",
        "run.sh",
        "#!/bin/sh\nset -- --model-path /m --speculative-algorithm EAGLE3\n"
        'set -- "$@" --speculative-num-steps 3 --speculative-eagle-topk 1\n'
        'set -- "$@" --speculative-num-draft-tokens 4\nexec python -m sglang.launch_server "$@"\n',
        "3/1/4",
    ),
    Case(
        "here-document beside the command",
        "run.sh",
        "#!/bin/bash\ncat > /tmp/notes <<-EOT\n\tit's --speculative-num-steps 9 here\n\tEOT\n"
        "python -m sglang.launch_server --speculative-algorithm EAGLE3"
        " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\n",
        "3/1/4",
    ),
    Case(
        "pinning and environment before the program",
        "run.sh",
        "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 NCCL_DEBUG=WARN numactl --cpunodebind=0 --membind=0"
        " python -m sglang.launch_server --speculative-algorithm EAGLE3 --speculative-num-steps 3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 2>&1 | tee -a log\n",
        "3/1/4",
    ),
    Case(
        "a benchmark of the other engine in the same file",
        "run.sh",
        "#!/bin/bash\npython -m sglang.launch_server --model-path /m --speculative-algorithm EAGLE3"
        " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 &\n"
        "until curl -sf localhost:30000/health; do sleep 1; done\n"
        "python -m sglang.bench_serving --backend sglang --num-prompts 100\n",
        "3/1/4",
    ),
    Case(
        "arithmetic gives the draft tokens",
        "run.sh",
        "#!/bin/bash\nK=3\npython -m sglang.launch_server --speculative-algorithm EAGLE3"
        " --speculative-num-steps $K --speculative-eagle-topk 1"
        " --speculative-num-draft-tokens $((K+1))\n",
        "3/1/4",
    ),
    Case(
        "docker run in a script",
        "run.sh",
        "#!/bin/bash\ndocker run --rm --gpus all -p 30000:30000 -e HF_HOME=/hf \\\n"
        "  lmsysorg/sglang:latest \\\n  python3 -m sglang.launch_server --model-path /m \\\n"
        "  --speculative-algorithm EAGLE3 --speculative-num-steps 3 \\\n"
        "  --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\n",
        "3/1/4",
    ),
    Case(
        "in a terminal multiplexer",
        "run.sh",
        "#!/bin/bash\ntmux kill-session -t sgl\ntmux new-session -d -s sgl 'cd /srv && python -m"
        " sglang.launch_server --speculative-algorithm EAGLE3 --speculative-num-steps 3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4; read'\n",
        "3/1/4",
    ),
    Case(
        "optional array under set -u",
        "run.sh",
        "#!/bin/bash\nset -u\nSPEC=(--speculative-algorithm EAGLE3 --speculative-num-steps 3)\n"
        "SPEC+=(--speculative-eagle-topk 1 --speculative-num-draft-tokens 4)\n"
        'python -m sglang.launch_server ${SPEC[@]+"${SPEC[@]}"}\n',
        "3/1/4",
    ),
    Case(
        "flags as the default of a variable",
        "run.sh",
        "#!/bin/sh\npython -m sglang.launch_server ${SPEC_ARGS:---speculative-algorithm EAGLE3"
        " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4}\n",
        "3/1/4",
    ),
    Case(
        "vllm JSON in single quotes",
        "v.sh",
        "#!/bin/sh\nvllm serve /m --tensor-parallel-size 2 --speculative-config"
        ' \'{"method":"eagle3","model":"/d","num_speculative_tokens":3}\' --port 8000\n',
        "3",
        VLLM,
    ),
    Case(
        "vllm JSON in double quotes",
        "v.service",
        "[Service]\nExecStart=/opt/bin/vllm serve /m --speculative-config"
        ' "{\\"method\\": \\"mtp\\", \\"num_speculative_tokens\\": 3}"\n',
        "3",
        VLLM,
    ),
    Case(
        "vllm JSON after an equals sign",
        "v.sh",
        "exec python -m vllm.entrypoints.openai.api_server --model /m"
        ' --speculative_config=\'{"num_speculative_tokens": 3, "method": "ngram"}\'\n',
        "3",
        VLLM,
    ),
    Case(
        "vllm JSON over several lines",
        "v.sh",
        '#!/bin/bash\nvllm serve /m \\\n  --speculative-config \'{\n    "method": "eagle3",\n'
        '    "model": "/d",\n    "num_speculative_tokens": 3\n  }\' \\\n  --port 8000\n',
        "3",
        VLLM,
    ),
    Case(
        "vllm JSON with a variable inside",
        "v.sh",
        "#!/bin/bash\nK=3\nvllm serve /m --speculative-config"
        ' "{\\"method\\":\\"eagle3\\",\\"num_speculative_tokens\\":$K}"\n',
        "3",
        VLLM,
    ),
    Case(
        "vllm JSON in a variable",
        "v.sh",
        '#!/bin/bash\nSPEC=\'{"method":"eagle3","num_speculative_tokens":3}\'\n'
        'vllm serve /m --speculative-config "$SPEC"\n',
        "3",
        VLLM,
    ),
    Case(
        "vllm dotted",
        "v.sh",
        "vllm serve /m --speculative-config.method eagle3"
        " --speculative-config.num_speculative_tokens 3\n",
        "3",
        VLLM,
    ),
    Case(
        "vllm in an environment file",
        "v.env",
        'VLLM_ARGS="--port 8000 --speculative-config'
        ' \'{\\"method\\":\\"eagle3\\",\\"num_speculative_tokens\\":3}\'"\n',
        "3",
        VLLM,
    ),
    Case(
        "vllm image with its arguments",
        "v.sh",
        "docker run --gpus all vllm/vllm-openai:v0.9 --model /m --speculative-config"
        ' \'{"method":"eagle3","num_speculative_tokens":3}\'\n',
        "3",
        VLLM,
    ),
    Case(
        "llama-server, old flags",
        "l.service",
        "[Service]\nExecStart=/usr/local/bin/llama-server -m /m.gguf -md /d.gguf --draft-max 3"
        " --draft-min 1 -ngl 99 -ngld 99 --port 8080\n",
        "3",
        LLAMA_CPP,
    ),
    Case(
        "llama-server, new flags",
        "l.sh",
        "#!/bin/sh\n/opt/llama/llama-server -m /m.gguf --spec-draft-model /d.gguf --spec-type"
        " draft-simple --spec-draft-n-max 3 -c 4096\n",
        "3",
        LLAMA_CPP,
    ),
    Case(
        "llama-server by its environment",
        "l.env",
        "LLAMA_ARG_MODEL=/m.gguf\nLLAMA_ARG_SPEC_DRAFT_N_MAX=3\nLLAMA_ARG_PORT=8080\n",
        "3",
        LLAMA_CPP,
    ),
    Case(
        "llama-server, environment in the unit",
        "l.service",
        "[Service]\nEnvironment=LLAMA_ARG_DRAFT_MAX=3\nExecStart=/usr/bin/llama-server -m /m\n",
        "3",
        LLAMA_CPP,
    ),
    Case(
        "llama-server, environment in the script",
        "l.sh",
        "#!/bin/sh\nexport LLAMA_ARG_SPEC_DRAFT_N_MAX=3\nexec llama-server -m /m.gguf\n",
        "3",
        LLAMA_CPP,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_published_form(case: Case) -> None:
    data = case.text.encode()
    assert detect_engine(data, TABLES.values(), path=case.path) is case.knobs
    reading = read_config(case.path, data, case.knobs)
    assert reading.settings.short() == case.short
    assert reading.settings.enabled is True
    target = replace(reading.settings, num_steps=7)
    if reading.settings.eagle_topk == 1:
        target = replace(target, num_draft_tokens=8)
    edit = edit_config(reading, target)
    assert edit.after == target
    if case.changed_line:
        assert case.changed_line in edit.data.decode().splitlines()
    again = read_config(case.path, edit.data, case.knobs)
    assert edit_config(again, reading.settings).data == data
    off = edit_config(reading, OFF)
    assert off.after == OFF
    assert off.removed is not None
    reading_off = read_config(case.path, off.data, case.knobs, known_off=True)
    restored = edit_config(reading_off, Settings(enabled=True), removed=off.removed)
    assert restored.data == data
