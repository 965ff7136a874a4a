from importlib import util
from pathlib import Path

import pytest

from grpo_sdk import UserError, load_task
from grpo_tasks_gym.verifiers.plugin import grpo_find_task, grpo_tasks, installed


def install(site: Path, name: str, needs: str) -> None:
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text("raise RuntimeError('imported')")
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}\n\nverifiers")
    (info / "RECORD").write_text(f"{module}.py,,\n{module}-1.0.dist-info/METADATA,,\n")


def test_packages_that_need_verifiers_are_listed_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "word-sums", "Requires-Dist: verifiers>=0.4.0")
    install(tmp_path, "other", "Requires-Dist: verifiers-extras")
    install(tmp_path, "maybe", "Requires-Dist: verifiers; extra == 'train'")
    install(tmp_path, "plain", "Requires-Dist: numpy")
    before = installed()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed() == before | {"word_sums": "word-sums 1.0"}
    (task,) = [task for task in grpo_tasks() if task.name == "word_sums"]
    assert task.load.__doc__ == "verifiers: the taskset word_sums of word-sums 1.0."


@pytest.mark.skipif(util.find_spec("verifiers") is not None, reason="verifiers is installed")
def test_without_verifiers_the_extra_is_named() -> None:
    for look in (lambda: load_task("verifiers.gsm8k"), lambda: grpo_find_task("gsm8k")):
        with pytest.raises(UserError, match=r"verifiers is not installed: pip install 'grpo-tasks-gym\[verifiers\]'"):
            look()


def test_an_unknown_taskset_says_how_to_install_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_tasks_gym.verifiers.plugin.check_installed", lambda *names: None)
    with pytest.raises(UserError, match=r"no taskset 'no_such_thing' .* `prime env install OWNER/no-such-thing`"):
        grpo_find_task("no_such_thing")
    with pytest.raises(UserError, match="no taskset"):
        grpo_find_task("os.path")
