"""Where the editor inserts, where it refuses and what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specdash.core.settings import OFF, Settings
from specdash.engines.knobs import LLAMA_CPP, SGLANG, TABLES, VLLM
from specdash.launch.detect import detect_engine
from specdash.launch.editing import check_here, edit_config
from specdash.launch.errors import (
    AmbiguousKnobError,
    KnobElsewhereError,
    KnobNotFoundError,
    NothingToRestoreError,
    UnreadableConfigError,
    UnsupportedFormError,
)
from specdash.launch.reading import read_config
from specdash.launch.removal import Removed

TARGET = Settings(num_steps=5, eagle_topk=1, num_draft_tokens=6, enabled=True)
SERVER = "python -m sglang.launch_server"
ALL = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1"


def read(text: str, path: str = "run.sh", **more: object):  # type: ignore[no-untyped-def]
    return read_config(path, text.encode(), SGLANG, **more)  # type: ignore[arg-type]


# -- inserting -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f"{SERVER} \\\n    --speculative-algorithm EAGLE3 \\\n    --port 1\n",
            (
                f"{SERVER} \\\n    --speculative-algorithm EAGLE3 \\\n    --speculative-num-steps 5 \\\n"
                "    --speculative-eagle-topk 1 \\\n    --speculative-num-draft-tokens 6 \\\n    --port 1\n"
            ),
        ),
        (
            f"{SERVER} --speculative-algorithm=EAGLE3 --port 1\n",
            (
                f"{SERVER} --speculative-algorithm=EAGLE3 --speculative-num-steps=5"
                " --speculative-eagle-topk=1 --speculative-num-draft-tokens=6 --port 1\n"
            ),
        ),
        (
            f"{SERVER} --speculative-num-steps 3 --port 1 --speculative-algorithm EAGLE3",
            (
                f"{SERVER} --speculative-num-steps 5 --port 1 --speculative-algorithm EAGLE3"
                " --speculative-eagle-topk 1 --speculative-num-draft-tokens 6"
            ),
        ),
        (
            f'A=(\n  --speculative-algorithm EAGLE3  # the one\n  --port 1\n)\n{SERVER} "${{A[@]}}"\n',
            (
                "A=(\n  --speculative-algorithm EAGLE3\n  --speculative-num-steps 5\n"
                "  --speculative-eagle-topk 1\n  --speculative-num-draft-tokens 6  # the one\n  --port 1\n"
                f')\n{SERVER} "${{A[@]}}"\n'
            ),
        ),
        (
            f'S="--speculative-algorithm EAGLE3"\n{SERVER} $S\n',
            (
                'S="--speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-eagle-topk 1'
                f' --speculative-num-draft-tokens 6"\n{SERVER} $S\n'
            ),
        ),
    ],
)
def test_missing_flags_are_inserted_in_the_style_of_the_algorithm(before: str, after: str) -> None:
    edit = edit_config(read(before), TARGET)
    assert edit.data.decode() == after
    assert any("inserted after --speculative-algorithm" in warning for warning in edit.warnings)


def test_insertion_after_a_comment_inside_a_unit_command() -> None:
    text = (
        f"[Service]\nExecStart=/usr/bin/{SERVER} \\\n  # speculation\n"
        "  --speculative-algorithm EAGLE3 \\\n  --port 1\n"
    )
    edit = edit_config(read(text, "x.service"), TARGET)
    expected = (
        f"/usr/bin/{SERVER} --speculative-algorithm EAGLE3 --speculative-num-steps 5"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 6 --port 1"
    )
    assert edit.argv == tuple(expected.split())
    assert "# speculation\n" in edit.data.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('\'{"method":"mtp"}\'', '\'{"method":"mtp","num_speculative_tokens":5}\''),
        (
            '"{\\"method\\": \\"mtp\\", \\"x\\": 1}"',
            '"{\\"method\\": \\"mtp\\", \\"num_speculative_tokens\\": 5, \\"x\\": 1}"',
        ),
    ],
)
def test_missing_json_key_is_inserted_with_the_quotes_of_the_others(
    before: str, after: str
) -> None:
    reading = read_config("v.sh", f"vllm serve /m -sc {before}\n".encode(), VLLM)
    edit = edit_config(reading, Settings(num_steps=5, enabled=True))
    assert edit.data.decode() == f"vllm serve /m -sc {after}\n"


def test_nothing_is_inserted_where_there_is_no_flag_to_follow() -> None:
    reading = read_config("l.env", b"LLAMA_ARG_SPEC_TYPE=draft-mtp\n", LLAMA_CPP)
    with pytest.raises(KnobNotFoundError, match="--spec-draft-n-max"):
        edit_config(reading, Settings(num_steps=4, enabled=True))


# -- repeated, abbreviated, commented --------------------------------------------------------


def test_of_repeated_flags_the_last_is_edited() -> None:
    text = f"{SERVER} {ALL} --speculative-num-draft-tokens 4 --speculative-num-steps 4\n"
    reading = read(text)
    assert reading.settings.num_steps == 4
    assert any("more than once" in warning for warning in reading.warnings)
    edit = edit_config(reading, replace(reading.settings, num_steps=9))
    assert edit.data.decode() == text.replace(
        "--speculative-num-steps 4", "--speculative-num-steps 9"
    )


def test_an_abbreviation_that_fits_two_flags_is_refused() -> None:
    with pytest.raises(AmbiguousKnobError, match="--speculative-num may stand for"):
        read(f"{SERVER} --speculative-num 3\n")


def test_a_flag_without_value_is_refused() -> None:
    with pytest.raises(AmbiguousKnobError, match="has no value") as caught:
        read(f"set -e\n{SERVER} --speculative-num-steps --speculative-eagle-topk 1\n")
    assert "run.sh:2" in caught.value.message


def test_a_flag_in_a_comment_is_no_flag() -> None:
    text = f"#!/bin/sh\n# {SERVER} --speculative-num-steps 3\n{SERVER} --port 1 # --speculative-num-steps 3\n"
    assert read(text).settings == OFF


def test_the_flags_of_another_engine_are_not_ours() -> None:
    assert read(f"{SERVER} --draft-max 4 --speculative-config '{{}}'\n").settings == OFF


def test_adaptive_speculation_is_said() -> None:
    reading = read(f"{SERVER} {ALL} --speculative-adaptive --port 1\n")
    assert any("Adaptive" in warning for warning in reading.warnings)
    assert edit_config(reading, OFF).argv == tuple(f"{SERVER} --port 1".split())


def test_a_value_that_is_no_number_is_said_and_not_read() -> None:
    reading = read(f"{SERVER} --speculative-num-steps auto\n")
    assert reading.settings.num_steps is None
    assert any("not a whole number" in warning for warning in reading.warnings)


# -- off -------------------------------------------------------------------------------------


def test_an_engine_without_flags_is_off() -> None:
    assert read(f"{SERVER} --model-path /m\n").settings == OFF
    unit = f"[Service]\nExecStart=/usr/bin/{SERVER} $SPEC_ARGS\n"
    assert read(unit, "x.service").settings == OFF


@pytest.mark.parametrize("flag", ["--spec-type none", "--spec-draft-n-max 0"])
def test_a_value_that_means_off(flag: str) -> None:
    reading = read_config("l.sh", f"llama-server -md /d {flag}\n".encode(), LLAMA_CPP)
    assert reading.settings == OFF
    assert not edit_config(reading, OFF).changed


def test_zero_can_be_changed_without_a_record() -> None:
    reading = read_config("l.sh", b"llama-server -md /d --draft-max 0\n", LLAMA_CPP)
    edit = edit_config(reading, Settings(num_steps=4, enabled=True))
    assert edit.data == b"llama-server -md /d --draft-max 4\n"


def test_turning_on_without_a_record_is_refused() -> None:
    with pytest.raises(NothingToRestoreError, match="--speculative-algorithm") as caught:
        edit_config(read(f"{SERVER} --port 1\n"), TARGET)
    assert caught.value.exit_code == 4


def test_turning_on_finds_its_place_in_a_file_that_changed() -> None:
    text = f"{SERVER} \\\n  --tp 2 \\\n  {ALL} \\\n  --port 1\n"
    off = edit_config(read(text), OFF)
    assert off.removed is not None
    moved = b"#!/bin/sh\nset -e\n" + off.data
    record = Removed.from_json(json.loads(json.dumps(off.removed.to_json())))
    on = edit_config(read_config("run.sh", moved, SGLANG), Settings(enabled=True), removed=record)
    assert on.data == b"#!/bin/sh\nset -e\n" + text.encode()
    with pytest.raises(NothingToRestoreError, match="no longer certain"):
        edit_config(read(f"{SERVER} --tp 4\n"), TARGET, removed=record)


def test_a_damaged_record_is_said() -> None:
    with pytest.raises(NothingToRestoreError, match="damaged"):
        Removed.from_json({"path": "x"})


def test_the_last_argument_takes_its_line_join_with_it() -> None:
    text = f"{SERVER} \\\n  --port 1 \\\n  {ALL}\necho done\n"
    off = edit_config(read(text), OFF)
    assert off.data.decode() == f"{SERVER} \\\n  --port 1\necho done\n"


# -- elsewhere -------------------------------------------------------------------------------

UNIT = (
    "[Service]\nEnvironmentFile=/etc/sglang.env\n"
    f"ExecStart=/usr/bin/{SERVER} --speculative-algorithm EAGLE3 --speculative-num-steps $STEPS"
    " --speculative-eagle-topk 1 --speculative-num-draft-tokens ${DRAFT}\n"
)
ENV = b"# depth\nSTEPS=3\nDRAFT='4'\n"


def test_a_value_in_an_unread_environment_file_is_named() -> None:
    reading = read(UNIT, "x.service")
    assert reading.settings == Settings("EAGLE3", None, 1, None, None, True)
    assert [reference.path for reference in reading.references] == ["/etc/sglang.env"]
    with pytest.raises(KnobElsewhereError) as caught:
        edit_config(reading, TARGET)
    assert (caught.value.path, caught.value.line) == ("/etc/sglang.env", 0)


def test_a_value_in_a_read_environment_file_is_named_with_its_line() -> None:
    reading = read(UNIT, "x.service", others={"/etc/sglang.env": ENV})
    assert reading.settings.num_steps == 3
    for act in (lambda: check_here(reading), lambda: edit_config(reading, TARGET)):
        with pytest.raises(KnobElsewhereError) as caught:
            act()
        assert (caught.value.path, caught.value.line) == ("/etc/sglang.env", 2)
    edit = edit_config(reading, TARGET, follow=True)
    assert edit.path == "/etc/sglang.env"
    assert edit.data == b"# depth\nSTEPS=5\nDRAFT='6'\n"
    assert edit.argv[-5:] == (
        "5",
        "--speculative-eagle-topk",
        "1",
        "--speculative-num-draft-tokens",
        "6",
    )


def test_settings_over_two_files_are_refused() -> None:
    unit = UNIT.replace("${DRAFT}", "4")
    reading = read(unit, "x.service", others={"/etc/sglang.env": ENV})
    with pytest.raises(AmbiguousKnobError, match="one edit changes one file"):
        edit_config(reading, TARGET, follow=True)


def test_unit_to_script_to_environment_file() -> None:
    unit = "[Service]\nExecStart=/opt/run.sh --speculative-eagle-topk 1\n"
    script = (
        b"#!/bin/bash\nset -a; . /etc/sgl.env; set +a\nexec python -m sglang.launch_server"
        b' --speculative-algorithm EAGLE3 --speculative-num-steps "$STEPS"'
        b' --speculative-num-draft-tokens "$DRAFT" "$@"\n'
    )
    with pytest.raises(KnobElsewhereError, match=r"/opt/run\.sh"):
        check_here(read(unit.replace(" --speculative-eagle-topk 1", ""), "x.service"))
    others = {"/opt/run.sh": script, "/etc/sgl.env": b"STEPS=3\nDRAFT=4\n"}
    reading = read(unit, "x.service", others=others)
    assert reading.settings.short() == "3/1/4"
    edit = edit_config(reading, TARGET, follow=True)
    assert (edit.path, edit.data) == ("/etc/sgl.env", b"STEPS=5\nDRAFT=6\n")


def test_a_script_that_needs_a_variable_from_outside() -> None:
    with pytest.raises(KnobNotFoundError, match="SPEC_ARGS"):
        read(f"{SERVER} --model-path /m $SPEC_ARGS\n")
    assert read(f"{SERVER} --model-path $MODEL --tp ${{TP}}\n").settings == OFF


def test_a_yaml_file_behind_config_is_named() -> None:
    with pytest.raises(KnobElsewhereError, match=r"serve\.yaml"):
        read(f"{SERVER} --config /etc/serve.yaml\n")


def test_flags_taken_out_of_another_file_go_back_there() -> None:
    unit = f"[Service]\nEnvironmentFile=/e\nExecStart=/usr/bin/{SERVER} $SPEC\n"
    env = f"A=1\nSPEC='{ALL} --speculative-num-draft-tokens 4'\n".encode()
    off = edit_config(read(unit, "x.service", others={"/e": env}), OFF, follow=True)
    assert (off.path, off.original, off.data) == ("/e", env, b"A=1\nSPEC=''\n")
    reading = read(unit, "x.service", others={"/e": off.data})
    for target, expected in (
        (Settings(enabled=True), env),
        (TARGET, env.replace(b"steps 3", b"steps 5").replace(b"tokens 4", b"tokens 6")),
    ):
        on = edit_config(reading, target, removed=off.removed, follow=True)
        assert (on.path, on.original, on.data) == ("/e", off.data, expected)
    with pytest.raises(KnobElsewhereError):
        edit_config(reading, TARGET, removed=off.removed)


# -- ambiguous -------------------------------------------------------------------------------


def test_two_services_need_a_name() -> None:
    text = (
        f"big() {{\n  {SERVER} --served-model-name big {ALL} --port 1\n}}\n"
        f"small() {{\n  {SERVER} --served-model-name small {ALL} --port 2\n}}\nbig &\nsmall\n"
    )
    with pytest.raises(AmbiguousKnobError, match="2 times") as caught:
        read(text)
    assert [line.split(":")[0] for line in caught.value.evidence] == ["2", "5"]
    for service in ("small", "2"):
        reading = read(text, service=service)
        edit = edit_config(reading, replace(reading.settings, num_steps=9))
        assert edit.data.decode().count("--speculative-num-steps 9") == 1
        assert (
            "small --speculative-algorithm EAGLE3 --speculative-num-steps 9" in edit.data.decode()
        )


def test_two_branches_that_set_the_value_are_listed() -> None:
    text = f"if a; then\n  K=3\nelse\n  K=5\nfi\n{SERVER} --speculative-num-steps $K\n"
    with pytest.raises(AmbiguousKnobError) as caught:
        read(text)
    assert [line.split(":")[0] for line in caught.value.evidence[:1]] == ["2"]


def test_a_value_used_for_something_else_is_refused() -> None:
    text = f"N=4\n{SERVER} --tp $N {ALL.replace('steps 3', 'steps $N')} --speculative-num-draft-tokens 5\n"
    with pytest.raises(AmbiguousKnobError, match="more than speculation") as caught:
        edit_config(read(text), TARGET)
    assert caught.value.evidence == ("4 would become 5",)


def test_two_variables_with_the_same_setting_are_refused() -> None:
    text = "A='--speculative-num-steps 3'\nB='--speculative-num-steps 5'\n"
    with pytest.raises(AmbiguousKnobError) as caught:
        read(text, "x.env")
    assert len(caught.value.evidence) == 2


def test_a_plain_value_alone_in_an_environment_file_is_not_guessed() -> None:
    with pytest.raises(KnobNotFoundError) as caught:
        read("STEPS=3\n", "x.env")
    assert caught.value.evidence == ("1: STEPS=3",)


def test_a_formula_that_does_not_give_the_target_is_refused() -> None:
    text = f"K=3\n{SERVER} {ALL.replace('steps 3', 'steps $K')} --speculative-num-draft-tokens $((K+2))\n"
    with pytest.raises(AmbiguousKnobError, match="formula"):
        edit_config(read(text), TARGET)


# -- forms and bad bytes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "form"),
    [
        ("docker-compose.yml", "services:\n  a:\n    image: x\n", "Docker Compose"),
        ("x.yaml", "apiVersion: v1\nkind: Pod\n", "Kubernetes"),
        ("serve.yaml", "speculative-num-steps: 3\n", "YAML"),
        ("Dockerfile", "FROM x\nCMD y\n", "Dockerfile"),
        ("serve.py", "import sglang\n", "Python"),
        ("serve", "#!/usr/bin/env python3\nimport sglang\n", "python3"),
        ("x.json", '{"a": 1}\n', "JSON"),
        ("x.conf", "[program:sglang]\ncommand=x\n", "INI"),
        ("x.fish", "set -x A b\n", "fish"),
    ],
)
def test_other_forms_are_refused_by_name(path: str, text: str, form: str) -> None:
    with pytest.raises(UnsupportedFormError, match=form):
        read(text, path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xfeK=3\n", "not UTF-8: byte 0"),
        (b"A=1\n\xe9\n", "line 2"),
        (b"\x7fELF\0\0", "binary"),
        (b"#" * (1 << 20) + b"\n", "bytes"),
        (b"[Service]\nExecStart=/bin/x 'a\n", "x.service:2"),
        (b"#!/bin/sh\necho 'a\n", "x.service:2"),
        (b"#!/bin/sh\nx ${A\n", "never closed"),
    ],
)
def test_broken_bytes_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableConfigError, match=words):
        read_config("x.service", data, SGLANG)


@pytest.mark.parametrize("data", [b"", b"\n \n", "\ufeff".encode()])
def test_an_empty_file_has_no_knob(data: bytes) -> None:
    with pytest.raises(KnobNotFoundError, match="empty"):
        read_config("x.service", data, SGLANG)


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("cd /srv/vllm && python -m sglang.launch_server\n", "sglang"),
        ("echo llama-server; vllm serve /m\n", "vllm"),
        ("pkill -f sglang.launch_server\ncommand -v vllm serve\nllama-server -m x\n", "llama.cpp"),
        ("docker pull vllm/vllm-openai\nsglang serve\n", "sglang"),
        ("A='--draft-max 4'\n", "llama.cpp"),
        ("LLAMA_ARG_DRAFT_MAX=4\n", "llama.cpp"),
        ("A=1\n", None),
        ("vllm serve /m &\npython -m sglang.launch_server\n", None),
    ],
)
def test_engine_is_told_by_its_program_or_flags(text: str, engine: str | None) -> None:
    found = detect_engine(text.encode(), TABLES.values(), path="run.sh")
    assert (None if found is None else found.engine) == engine


@pytest.mark.parametrize(
    "text",
    [
        "A=xx\n" + "A=$A$A\n" * 60,
        "A=$A$B\n" * 5000,
        "if a; then\n" * 5000,
        "(" * 5000,
        '"$(' * 5000,
        "${a:-" * 5000,
        "A+=(x y)\n" * 5000,
    ],
    ids=["doubling", "growing", "if", "subshells", "substitutions", "defaults", "array"],
)
def test_a_file_made_to_exhaust_the_reader_is_refused(text: str) -> None:
    with pytest.raises(UnreadableConfigError):
        read(f"{text}\n{SERVER} {ALL}\n")


def test_a_word_that_holds_a_command_and_cannot_be_split_ends() -> None:
    with pytest.raises(KnobNotFoundError):
        read("exec x${y -m sglang.launch_server }\n")


def test_json_that_is_none_is_said() -> None:
    reading = read_config("v.sh", b"vllm serve /m -sc {method:mtp}\n", VLLM)
    assert reading.settings == Settings(enabled=True)
    with pytest.raises(AmbiguousKnobError, match="not a JSON object"):
        edit_config(reading, Settings(num_steps=3, enabled=True))
    reading = read_config("v.sh", b'vllm serve /m -sc "{\\"num_speculative_tokens\\": $K}"\n', VLLM)
    with pytest.raises(KnobNotFoundError, match="from K"):
        edit_config(reading, Settings(num_steps=3, enabled=True))
