"""systemd through a scripted host: exact commands, and every way it does not answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from specdash.core.errors import SpecdashError, UnreachableError, UsageError
from specdash.core.service import ServiceStatus
from specdash.rig.schema import ServiceSpec
from specdash.services.registry import service_for
from specdash.services.systemd import Systemd

SHOW = b"LoadState=loaded\nActiveState=%s\nMainPID=7\nControlGroup=/system.slice/sglang.service\n"


def _answers(**by_verb: Any) -> Callable[[tuple[str, ...]], Any]:
    def answer(argv: tuple[str, ...]) -> Any:
        return by_verb.get(argv[1].replace("-", "_"), b"")

    return answer


def test_commands_are_plain_values(scripted: Any) -> None:
    unit = Systemd(scripted(), "sglang@qwen")
    assert unit.unit == "sglang@qwen.service"
    assert unit.host_name == "svc"
    assert unit.stop_argv() == ("systemctl", "stop", "--no-block", "sglang@qwen.service")
    assert unit.start_argv() == ("systemctl", "start", "--no-block", "sglang@qwen.service")
    assert unit.reload_argv() == ("systemctl", "daemon-reload")


def test_user_units_speak_to_the_users_manager(scripted: Any) -> None:
    unit = Systemd(scripted(), "sglang", user=True)
    assert unit.stop_argv() == ("systemctl", "--user", "stop", "--no-block", "sglang.service")
    assert unit.show_argv()[:3] == ("systemctl", "--user", "show")


async def test_status_is_one_command(scripted: Any) -> None:
    host = scripted(_answers(show=SHOW % b"active"))
    status = await Systemd(host, "sglang").status()
    assert (status.state, status.main_pid) == ("active", 7)
    assert len(host.ran) == 1
    assert host.ran[0][:3] == ("systemctl", "show", "sglang.service")


async def test_an_unknown_unit_is_a_state_not_an_error(scripted: Any) -> None:
    host = scripted(_answers(show=b"LoadState=not-found\nActiveState=inactive\n"))
    assert (await Systemd(host, "gone").status()).state == "not-found"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((1, b"", b"System has not been booted with systemd as init system"), "does not run systemd"),
        ((127, b"", b"sh: systemctl: not found"), "no systemctl"),
        ((1, b"", b"Failed to connect to bus: No medium found"), "user session"),
        ((1, b"", b"Failed to connect to bus: Permission denied"), "over its bus"),
        ((1, b"", b"something else"), "does not say"),
        ((0, b"a banner and nothing else\n", b""), "does not say"),
    ],
)  # fmt: skip
async def test_no_answer_is_a_sentence_with_a_remedy(
    answer: Any, words: str, scripted: Any
) -> None:
    with pytest.raises(SpecdashError, match=words) as caught:
        await Systemd(scripted(_answers(show=answer)), "sglang").status()
    assert caught.value.exit_code == 1
    assert caught.value.remedy
    assert any("systemctl show" in line for line in caught.value.evidence)


async def test_a_lost_link_is_not_a_state(scripted: Any) -> None:
    with pytest.raises(UnreachableError):
        await Systemd(scripted(_answers(show=(None, b"", b""))), "sglang").status()


async def test_a_deadline_is_said(scripted: Any) -> None:
    host = scripted(_answers(show=(None, b"", b"")), timed_out=True)
    with pytest.raises(SpecdashError) as caught:
        await Systemd(host, "sglang").status()
    assert "deadline passed" in caught.value.evidence


@pytest.mark.parametrize(("state", "verbs"), [(b"failed", ["show", "reset-failed", "start"]), (b"inactive", ["show", "start"])])  # fmt: skip
async def test_start_resets_a_failed_unit_first(
    state: bytes, verbs: list[str], scripted: Any
) -> None:
    host = scripted(_answers(show=SHOW % state))
    completed = await Systemd(host, "sglang").start()
    assert completed.argv == ("systemctl", "start", "--no-block", "sglang.service")
    assert [argv[1] for argv in host.ran] == verbs


async def test_control_group_pids_come_from_ps(scripted: Any) -> None:
    host = scripted(lambda argv: b" 7 0::/system.slice/sglang.service\n 8 0::/init.scope\n")
    status = ServiceStatus("sglang.service", control_group="/system.slice/sglang.service")
    assert await Systemd(host, "sglang").control_group_pids(status) == (7,)
    assert host.ran == [("env", "LC_ALL=C", "ps", "-ww", "-e", "-o", "pid=,cgroup=")]


async def test_no_control_group_asks_nothing(scripted: Any) -> None:
    host = scripted()
    assert await Systemd(host, "sglang").control_group_pids(ServiceStatus("sglang.service")) == ()
    assert host.ran == []


async def test_recent_log_of_a_start(scripted: Any) -> None:
    host = scripted(lambda argv: b'{"MESSAGE":"a\\nb"}\n{"MESSAGE":"c"}\n')
    assert await Systemd(host, "sglang").recent_log(invocation="5f2c", lines=2) == [b"b", b"c"]
    assert host.ran[0][-5:] == (
        "-n",
        "2",
        "_SYSTEMD_INVOCATION_ID=5f2c",
        "+",
        "INVOCATION_ID=5f2c",
    )


async def test_recent_log_of_the_unit(scripted: Any) -> None:
    host = scripted()
    assert await Systemd(host, "sglang").recent_log() == []
    assert host.ran[0][-4:] == ("-n", "200", "-u", "sglang.service")


async def test_recent_log_without_matches_is_empty(scripted: Any) -> None:
    assert await Systemd(scripted(lambda argv: (1, b"", b"")), "sglang").recent_log() == []


async def test_recent_log_without_rights_is_said(scripted: Any) -> None:
    host = scripted(lambda argv: (1, b"", b"No journal files were opened due to insufficient"))
    with pytest.raises(SpecdashError, match="cannot be read"):
        await Systemd(host, "sglang").recent_log()


async def test_follow_splits_messages(scripted: Any) -> None:
    host = scripted(records=[b'{"MESSAGE":"a\\nb"}', b'{"MESSAGE":null}', b'{"MESSAGE":[99]}'])
    async with Systemd(host, "sglang").follow_log() as lines:
        assert [line async for line in lines] == [b"a", b"b", b"c"]
    assert host.ran[0][-6:] == ("-f", "-n", "0", "--since=now", "-u", "sglang.service")


async def test_check_config_gives_the_complaints_on_our_file(scripted: Any) -> None:
    out = (
        b'/tmp/tmp.x/sglang.service:4: Unbalanced quoting, ignoring: "a\n'
        b"other.socket: Unit other.service not found.\n"
        b"sglang.service: Service has no ExecStart=. Refusing.\n"
    )
    host = scripted(lambda argv: (1, out, b""))
    complaint = await Systemd(host, "sglang").check_config("/etc/systemd/system/sglang.service", b"[Service]\n")  # fmt: skip
    assert "Unbalanced quoting" in complaint
    assert "Refusing" in complaint
    assert "other.socket" not in complaint
    assert host.stdin == [b"[Service]\n"]


@pytest.mark.parametrize("answer", [b"unchecked\n", b"", (127, b"", b"sh: not found"), (1, b"x.mount: bad\n", b"")])  # fmt: skip
async def test_check_config_has_nothing_to_say(answer: Any, scripted: Any) -> None:
    unit = Systemd(scripted(lambda argv: answer), "sglang")
    assert await unit.check_config("/etc/systemd/system/sglang.service", b"x") == ""


@pytest.mark.parametrize("path", ["/etc/default/sglang", "/etc/systemd/system/a.service.d/x.conf"])
async def test_only_unit_files_are_verified(path: str, scripted: Any) -> None:
    host = scripted()
    assert await Systemd(host, "sglang").check_config(path, b"x") == ""
    assert host.ran == []


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed on this machine"
)
async def test_check_config_with_the_real_systemd_analyze(this_host: Any) -> None:
    unit = Systemd(this_host, "specdash-check")
    good = b"[Service]\nExecStart=/bin/true --steps 3\n"
    assert await unit.check_config("/etc/systemd/system/specdash-check.service", good) == ""
    bad = b'[Service]\nExecStart=/bin/true "unbalanced\n'
    complaint = await unit.check_config("/etc/systemd/system/specdash-check.service", bad)
    assert "specdash-check.service" in complaint


def test_registry_makes_systemd_and_refuses_the_rest(scripted: Any) -> None:
    assert service_for(ServiceSpec("svc", "systemd", "a"), scripted()).unit == "a.service"
    with pytest.raises(UsageError, match="not supported yet") as caught:
        service_for(ServiceSpec("svc", "docker", "a"), scripted())
    assert "systemd" in caught.value.remedy
