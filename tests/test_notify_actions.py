"""Proposals: words for every fault, commands that survive hostile names, nothing run."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.simulate.spec import FAULT_MIX
from serve import actions
from serve.actions import ActionSettings, propose
from tests.serve_support import make_alert

ROOT = Path(__file__).parent.parent


def alert(**fields: Any) -> dict[str, Any]:
    fields.setdefault("recommended_action", "")
    fields.setdefault("fault_types", ())
    return make_alert(fields.pop("machine", "node17"), **fields).to_json()


def test_the_commands_are_ready_to_copy() -> None:
    texts = [c.text for c in propose(alert()).commands]
    assert texts[1:] == [
        "scontrol update nodename=node17 state=drain"
        ' reason="weaklink llama-node17: fail_slow job llama"',
        "kubectl cordon node17",
        "kubectl taint nodes node17 weaklink/fault=fail_slow:NoSchedule --overwrite",
    ]


@pytest.mark.parametrize("fault", sorted(FAULT_MIX))
def test_every_fault_type_has_advice_of_its_own(fault: str) -> None:
    general = propose(alert()).text
    assert propose(alert(fault_types=((fault, 0.9),))).text != general


def test_an_unsure_fault_type_decides_nothing() -> None:
    assert propose(alert(fault_types=(("ecc_error", 0.49),))).text == propose(alert()).text


def test_an_unknown_fault_type_falls_back_to_how_it_fails() -> None:
    assert propose(alert(fault_types=(("gremlins", 0.9),))).text == propose(alert()).text


@pytest.mark.parametrize("how", ["fail_stop", "fail_slow", "fail_hang", "silent", "unknown"])
def test_every_manifestation_has_advice(how: str) -> None:
    assert propose(alert(manifestation=how)).text


def test_the_detectors_own_words_come_first() -> None:
    assert propose(alert(recommended_action="Do this.")).text == "Do this."


def test_storage_trouble_drains_nothing() -> None:
    texts = [c.text for c in propose(alert(fault_types=(("hdfs_error", 0.9),))).commands]
    assert not any("drain" in t or "cordon" in t for t in texts)


def test_a_known_gpu_is_named_in_the_commands() -> None:
    texts = [c.text for c in propose(alert(gpu=5, fault_types=(("ecc_error", 0.9),))).commands]
    assert texts[0] == "nvidia-smi -i 5 -q -d ECC,ROW_REMAPPER"
    assert texts[-1] == "nvidia-smi --gpu-reset -i 5"


@pytest.mark.parametrize("verdict", ["group", "job", "undetermined"])
def test_only_one_accused_machine_gets_commands(verdict: str) -> None:
    proposal = propose(alert(machine=None, verdict=verdict, machines=("a", "b"), shared="leaf-7"))
    assert proposal.commands == ()
    assert proposal.text


def test_a_group_is_told_to_look_at_what_it_shares() -> None:
    assert "leaf-7" in propose(alert(machine=None, verdict="group", shared="leaf-7")).text


@pytest.mark.parametrize("name", ["node[1-400]", "a,b", "ALL", "all", "-f", "a\nb"])
def test_a_name_that_slurm_would_expand_gets_no_command(name: str) -> None:
    proposal = propose(alert(machine=name), ActionSettings(schedulers=("slurm",)))
    assert not any("scontrol" in c.text for c in proposal.commands)
    assert "No command for slurm" in proposal.text


@pytest.mark.parametrize("name", ["Node17", "a b", "$(reboot)", "a/b", "--all", "a\n"])
def test_a_name_that_kubernetes_cannot_have_gets_no_command(name: str) -> None:
    proposal = propose(alert(machine=name), ActionSettings(schedulers=("kubernetes",)))
    assert not any("kubectl" in c.text for c in proposal.commands)


def test_short_names_leave_the_domain_out() -> None:
    proposal = propose(
        alert(machine="n1.cluster.example"),
        ActionSettings(schedulers=("kubernetes",), node_name="short"),
    )
    assert proposal.commands[-2].text == "kubectl cordon n1"


HOSTILE = st.text(
    st.sampled_from([*"ab1$`'\"\\;&|<>(){}*?~!# \t\n%=\x00é\u202e"]),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def stub_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose ``scontrol`` prints its arguments, one a line, and nothing else."""
    folder = tmp_path_factory.mktemp("stub")
    stub = folder / "scontrol"
    stub.write_text('#!/bin/sh\nfor a in "$@"; do printf "%s\\n" "$a"; done\n')
    stub.chmod(0o755)
    return folder


@settings(max_examples=60, deadline=None)
@given(machine=HOSTILE, job=HOSTILE)
def test_a_shell_takes_a_hostile_name_as_one_word(stub_path: Path, machine: str, job: str) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    found = propose(alert(machine=machine, job=job), ActionSettings(schedulers=("slurm",)))
    commands = [c.text for c in found.commands if "scontrol" in c.text]
    if not machine.isprintable():
        assert commands == []
        return
    if machine.startswith("-"):
        return
    done = subprocess.run(
        [shell, "-c", commands[0]],
        env={"PATH": str(stub_path)},
        cwd=os.fspath(stub_path),
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.split("\n")
    assert words[:3] == ["update", f"nodename={machine}", "state=drain"]
    assert words[3].startswith("reason=weaklink ")
    assert len(words) == 5
    assert done.stderr == ""


SOURCES = sorted([Path(actions.__file__), *(ROOT / "serve" / "notify").glob("*.py")])


@pytest.mark.parametrize("path", SOURCES, ids=[p.stem for p in SOURCES])
def test_nothing_here_can_run_a_command(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not imported & {"os", "subprocess", "pty", "multiprocessing", "ctypes"}
