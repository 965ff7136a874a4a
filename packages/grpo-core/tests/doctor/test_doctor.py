"""`grpo doctor`: what it finds of the machine and of plugins, none of which can harm it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_core.doctor import settings, torch_and_device
from grpo_sdk import distributions
from grpo_sdk.cli.doctor import Finding, examine
from grpo_sdk.cli.main import main
from grpo_sdk.doctor import machine
from grpo_sdk.doctor.worker import diagnosed
from grpo_sdk.plugins import finder
from grpo_sdk.plugins.facts import Diagnosis
from grpo_sdk.plugins.host import default_host

ONE = (Path(__file__).parent / "programs" / "doctor_one.py").read_text()

Site = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Installs plugins into a folder that other processes see, too; only these are looked at."""
    folder = tmp_path / "site"
    folder.mkdir()
    before = set(sys.modules)
    names: list[str] = []
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finder, "OURS", {"core"})  # importing torch is most of what an examination costs

    def install(plugin: str, source: str) -> None:
        module = f"doctor_{plugin}"
        (folder / f"{module}.py").write_text(source)
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[grpo]\n{plugin} = {module}\n")
        names.append(plugin)
        monkeypatch.setenv("GRPO_PLUGINS", ",".join(names))
        default_host.cache_clear()

    yield install
    default_host.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("doctor_"):
            del sys.modules[name]


def plugin(*names: str) -> str:
    targets = {name: f"doctor_one:{name}" for name in names}
    return f"{ONE}\nfrom grpo_sdk import hookimpl\n@hookimpl\ndef grpo_diagnostics():\n    return {targets}\n"


def of(findings: list[Finding], source: str) -> list[Diagnosis]:
    return [diagnosis for origin, diagnosis in findings if origin.startswith(source)]


def test_a_plugins_findings_stand_beside_ours(site: Site, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "OURS", {"core", "trainer"})
    site("one", plugin("level"))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["failed"]
    by_name = {each["name"]: each for each in found["findings"]}
    assert list(by_name)[:4] == ["python", "system", "cores", "memory"]
    assert {"disk", "torch", "precision", "extra wandb"} <= set(by_name)
    begins = {
        "device": "cpu: no accelerator found", "platform": "SLURM: SLURM_JOB_ID=17, 1 node. ",
        "GPU profile": "cpu: CPU, ", "plugin core": "1 task", "plugin trainer": "1 model", "plugin one": "no tasks",
    }  # fmt: skip
    assert all(by_name[name]["text"].startswith(text) for name, text in begins.items())
    assert by_name["sandbox"] == {"source": "doctor_one 1.0", "name": "sandbox", "status": "ok", "text": "L3"}
    assert by_name["engine"]["status"] == "warn"


def test_what_breaks_or_hangs_is_a_line_and_harms_nothing_else(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site("one", plugin("crash", "hang", "vanish", "words", "level"))
    site("broken", "import nothing_of_this_name\n")
    site("sleeper", "import time\ntime.sleep(60)\n")
    findings = examine(plugin_timeout_s=4.0, diagnosis_timeout_s=4.0)
    said = [found.text for found in of(findings, "doctor_one") if found.status == "fail"]
    assert said[0].startswith("doctor_one:crash raised RuntimeError (doctor_one.py:")
    assert said[1].startswith("doctor_one:hang took longer than 4 s and was ended")
    assert said[2].startswith("doctor_one:vanish crashed the process")
    assert said[3] == "doctor_one:words gave a str, it must give Diagnosis objects"
    assert Diagnosis("sandbox", "ok", "L3") in of(findings, "doctor_one")
    long = list(diagnosed("doctor_one:long"))
    assert (len(long), len(long[0].text)) == (50, 500), "both are cut"
    (broken,), (sleeper,) = of(findings, "doctor_broken"), of(findings, "doctor_sleeper")
    assert broken.status == "fail" and "failed to load: ModuleNotFoundError" in broken.text
    assert sleeper.status == "fail" and sleeper.text.endswith("failed to load: it takes longer than 4 s and was ended")


def test_a_broken_plugin_makes_the_exit_code_1_and_is_imported_again(
    site: Site, capsys: Capture, monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    site("broken", "from grpo_sdk import hookimpl\n\n@hookimpl\ndef grpo_diagnostic():\n    return {}\n")
    site("one", plugin("level"))
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["what", "state", "found", "from"]
    assert any(line.split()[:5] == ["engine", "warn", "not", "found:", "install"] for line in lines)
    assert "Did you mean 'grpo_diagnostics'?" in next(line for line in lines if line.startswith("plugin broken"))
    default_host.cache_clear()
    found = {diagnosis.name: diagnosis for _, diagnosis in examine()}
    assert found["plugin one"].text == "no tasks; remembered, its files have not changed since"
    assert found["sandbox"].text == "L3"
    assert "grpo_diagnostics" in found["plugin broken"].text and "remembered" not in found["plugin broken"].text


@pytest.mark.parametrize(("name", "near"), [("GRPO_DEVICES", "GRPO_DEVICE"), ("GRPO_PROFILE", "h100")])
def test_a_setting_that_is_unknown_is_a_finding(monkeypatch: pytest.MonkeyPatch, name: str, near: str) -> None:
    monkeypatch.setenv(name, "h10")
    assert [f"Did you mean '{near}'?" in found.text for found in settings() if found.status == "fail"] == [True]


@pytest.mark.parametrize(("emulates", "status"), [(True, "warn"), (False, "ok")])
def test_bfloat16_that_a_cpu_emulates_is_warned_of(emulates: bool, status: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("grpo_core.policy.device.emulates_bfloat16", lambda device: emulates)
    monkeypatch.setenv("GRPO_DEVICE", "cpu")
    monkeypatch.setenv("GRPO_PRECISION", "bfloat16")
    *_, precision = torch_and_device()
    assert (precision.name, precision.status) == ("precision", status)
    assert ("several times slower than float32" in precision.text) is emulates
    monkeypatch.setenv("GRPO_DEVICE", "cuda:7")  # which is not there
    _, device = torch_and_device()
    assert device.status == "fail" and device.text.startswith("device=cuda:7: torch ")


def test_it_brings_no_torch_into_this_process() -> None:
    # Torch is imported in a process that may be ended.
    code = "import sys, grpo_sdk.cli.doctor; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("free", "status"), [(machine.NO_DISK - 1, "fail"), (machine.LITTLE_DISK - 1, "warn"), (10 * machine.GIB, "ok")]
)
def test_room_for_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: str) -> None:
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    found = machine.disk(tmp_path / "not" / "there")
    assert found.status == status and machine.size(free) in found.text
    (tmp_path / "file").write_text("")
    found = machine.disk(tmp_path / "file" / "runs")
    assert found.status == "fail" and "cannot be written; give another --output-dir" in found.text


@pytest.mark.parametrize(("content", "text", "status"), [
    (str(4 * machine.GIB), "3.0 GiB of 4.0 GiB (the container's limit) available", "ok"),
    (str(machine.GIB), "1.0 GiB of 1.0 GiB (the container's limit) available; little", "warn"),
    ("max", "3.0 GiB of 16.0 GiB available", "ok"),
    ("9" * 30, "3.0 GiB of 16.0 GiB available", "ok"),
])  # fmt: skip
def test_memory_is_the_containers(tmp_path: Path, monkeypatch: Any, content: str, text: str, status: str) -> None:
    (tmp_path / "memory.max").write_text(content)
    there: Any = SimpleNamespace(total=16 * machine.GIB, available=3 * machine.GIB)
    monkeypatch.setattr(machine, "CGROUP_MEMORY", tmp_path / "memory.max")
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: there)
    found = machine.memory()
    assert found.status == status and found.text.startswith(text)


def test_extras_say_how_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = "vllm>=0.28; sys_platform == 'linux' and extra == 'vllm'"
    requirements = {
        "grpo-sdk": ['ray>=2.50; extra == "ray"'],
        "grpo-core": ["torch>=2.6", 'wandb>=0.20; extra == "wandb"', vllm],
    }
    versions = {"wandb": "0.21", "grpo-sdk": "0.1.0", "grpo-core": "0.1.0"}
    fake = SimpleNamespace(
        requires=requirements.__getitem__, version=lambda name: versions[name], PackageNotFoundError=KeyError
    )
    monkeypatch.setattr(machine, "metadata", fake)
    monkeypatch.setattr(distributions, "metadata", fake)
    assert list(machine.extras()) == [
        Diagnosis("extra ray", "ok", "not installed: pip install 'grpo-sdk[ray]'"),
        Diagnosis("extra vllm", "ok", "not installed: pip install 'grpo-core[vllm]'"),
        Diagnosis("extra wandb", "ok", "wandb 0.21"),
    ]
