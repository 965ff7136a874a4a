import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ears import Ears
from evaluation_runs import FakeModels, make_run, write_checkpoint

from grpo_core import train
from grpo_core.config import EvalConfig, LoraConfig, load_config, to_yaml
from grpo_core.evaluation import runs
from grpo_core.evaluation.runs import RunEvaluation, evaluate_run
from grpo_core.evaluation.settings import EvaluationSettings
from grpo_sdk.endpoints.base import StopRequested
from grpo_sdk.errors import UserError

SAMPLING = "temp0.0_p1.0_r1"


class Lab:
    """A run, and models that are not loaded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.run = make_run(folder, **options)
        self.out = folder / "eval_runs"
        self.name = f"{self.run.name}_tasks.letters"
        self.models, self.watch = FakeModels(), Ears()
        monkeypatch.setattr(runs, "evaluate_model", self.models)

    def reconfigure(self, leave_out: frozenset[str] = frozenset(), **changed: Any) -> None:
        """Change the run's configuration."""
        file = self.run / "config.yaml"
        config = load_config({}, config_file=file, environ={}, dotenv_path=None).config
        file.write_text(to_yaml(config.model_copy(update=changed), leave_out=leave_out))

    def evaluate(self, steps: str = "all", **options: Any) -> RunEvaluation:
        return evaluate_run(self.run, callbacks=(self.watch,), **{"steps": steps, "output_dir": self.out, **options})

    def other(self) -> str:
        """Another model."""
        (self.folder / "other").mkdir()
        (self.folder / "other" / "config.json").write_text("{}")
        return str(self.folder / "other")

    def jobs(self) -> list[dict[str, Any]]:
        """What the models were asked for since the last call."""
        jobs, self.models.jobs = self.models.jobs, []
        return jobs


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def test_every_checkpoint_in_order_with_the_control_first(lab: Lab) -> None:
    lab.models.shares = {"base": 0.25, "step_10": 0.75, "step_final": 1}
    found = lab.evaluate()
    jobs = lab.jobs()
    assert [job["step"] for job in jobs] == ["base", "step_2", "step_10", "step_final"], "by number, not by name"
    models = [str(lab.run / "training_state" / f"step_{step}" / "model") for step in (2, 10, "final")]
    assert [job["model"] for job in jobs] == ["tiny", *models]
    assert all(job["adapter"] is None for job in jobs)
    assert all(job["start"] == ("tiny", None) for job in jobs), "the opponent `base`"
    assert jobs[0]["settings"]["tasks.letters"] == {
        "size": 8, "split": "test", "subset_frac": None, "n": 1, "temperature": 0.0, "top_p": 1.0,
        "max_completion_length": 8, "seed": 5, "batch_size": None, "surprisal": True,
    }, "as the run's own evaluation"  # fmt: skip
    assert [phase for _, phase, _ in lab.watch.results] == ["initial", "interval", "interval", "final"]
    assert lab.watch.progress[0] == ("base: evaluating letters", 1, 2)
    (results,) = found.results.values()
    assert [result["checkpoint"] for *_, result in lab.watch.results] == list(results) == [job["step"] for job in jobs]
    # 0.75 over the base's 0.25: 4 rows of 8 are gained, Tango's interval.
    ten = results["step_10"]
    assert (ten["delta"], ten["delta_ci_low"], ten["delta_n"]) == (0.5, pytest.approx(0.0134, abs=1e-4), 8)
    assert "delta" not in results["base"]
    assert (found.failures, found.kept, len(found.folders)) == ({}, [], 1)


def test_the_files(lab: Lab) -> None:
    lab.evaluate("2,final")
    folder = lab.out / lab.name
    assert (folder / "step_2" / SAMPLING / "run_meta.json").is_file()
    assert (folder / "consolidated_metrics.csv").is_file()
    config = yaml.safe_load((folder / "eval_config.yaml").read_text())
    assert (config["n"], config["temperature"], config["base"]) == (1, 0.0, "tiny")
    summary = json.loads((folder / "summary.json").read_text())
    entry = summary["tasks"]["tasks.letters"]
    assert entry["base"] == entry["initial"]
    assert entry["initial"]["solved_rate"] == entry["final"]["solved_rate"] == 0.5
    assert list(entry["checkpoints"]) == ["base", "step_2", "step_final"]
    assert (summary["seed"], summary["failures"]) == (5, {})


def test_failures_are_reported_and_not_fatal(lab: Lab) -> None:
    lab.models.errors = {
        "base": UserError("the weights are damaged"), "step_2": StopRequested(), "step_10": MemoryError("too\nlarge")
    }  # fmt: skip
    found = lab.evaluate(timeout_s=0.2)
    late = "not finished within 0.2 s (--timeout-s)"
    assert found.failures == {"base": "the weights are damaged", "step_2": late, "step_10": "MemoryError: too large"}
    assert list(found.results["tasks.letters"]) == ["step_final"]
    assert "step_10 failed: MemoryError: too large" in lab.watch.said
    assert json.loads((lab.out / lab.name / "summary.json").read_text())["failures"] == found.failures
    lab.jobs(), lab.models.errors.clear()
    assert lab.evaluate().failures == {}
    assert [job["step"] for job in lab.jobs()] == ["base", "step_2", "step_10"], "the next call evaluates what failed"


def test_results_are_kept_unless_overwritten(lab: Lab) -> None:
    settings = EvaluationSettings(size=8, n=8, temperature=0.7, max_completion_length=8, seed=5)
    lab.evaluate("2", settings=settings)
    assert lab.jobs()[0]["settings"]["tasks.letters"]["n"] == 8, "in another folder"
    lab.evaluate("2")
    lab.jobs()
    found = lab.evaluate("2,10")
    assert [job["step"] for job in lab.jobs()] == ["step_10"]
    assert found.kept == ["base", "step_2"]
    assert any(said.startswith("step_2 has been evaluated") and "--overwrite" in said for said in lab.watch.said)
    assert list(found.results["tasks.letters"]) == ["base", "step_2", "step_10"], "the kept ones are reported, too"
    lab.evaluate("2", overwrite=True)
    assert [job["step"] for job in lab.jobs()] == ["base", "step_2"]


def test_results_of_an_earlier_end_are_not_taken_and_auto_is_the_precision_that_the_run_had(lab: Lab) -> None:
    lab.evaluate("final", with_base=False)
    assert lab.jobs()[0]["options"].precision == "auto", "an older checkpoint doesn't say"
    write_checkpoint(lab.run, "final", step=2, precision="float32")
    lab.evaluate("final", with_base=False, overwrite=True)
    assert lab.jobs()[0]["options"].precision == "float32"
    for info, said in (
        ({"step": 4, "precision": "float32"}, "steps_done=2 there, 4 here"),
        ({"step": 2, "precision": "float64"}, "precision='float32' there, 'float64' here"),
    ):
        write_checkpoint(lab.run, "final", **info)
        with pytest.raises(UserError, match=said):
            lab.evaluate("final", with_base=False)


def test_a_run_that_was_moved_keeps_its_results_and_one_of_the_same_name_does_not_get_them(lab: Lab) -> None:
    lab.evaluate("2", with_base=False)
    twin = shutil.copytree(lab.run, lab.folder / "other_runs" / lab.run.name, symlinks=True)
    with pytest.raises(UserError, match=r"run='.*training_runs.*' there, '.*other_runs.*' here"):
        evaluate_run(twin, steps="2", output_dir=lab.out)
    shutil.rmtree(lab.run)
    assert evaluate_run(twin, steps="2", with_base=False, output_dir=lab.out).kept == ["step_2"]


def test_the_run_decides_how_it_is_evaluated(lab: Lab) -> None:
    held = EvalConfig(
        size=6, split="validation", subset_frac=0.5, n=3, temperature=0.9, top_p=0.8, max_completion_length=5,
        batch_size=2, surprisal=False, at_start=False, at_end=False, task=f"{lab.folder}/tasks.py:again",
    )  # fmt: skip
    lab.reconfigure(eval=held, precision="float64", seed=9)
    lab.evaluate("2")
    _, job = lab.jobs()
    assert set(job["settings"]) == {"tasks.letters", "tasks.again"}, "also what the run itself left out in the end"
    assert job["settings"]["tasks.letters"] == {
        "size": 6, "split": "validation", "subset_frac": 0.5, "n": 3, "temperature": 0.9, "top_p": 0.8,
        "max_completion_length": 5, "seed": 9, "batch_size": 2, "surprisal": False,
    }  # fmt: skip
    assert job["options"].precision == "float64"
    wishes = frozenset({"eval.size", "eval.split", "eval.n", "eval.temperature"})  # a run leaves them open, too
    lab.reconfigure(wishes, eval=EvalConfig(task=f"{lab.folder}/tasks.py:wishful"))
    lab.evaluate("2")
    settings = [(each["size"], each["split"], each["n"]) for each in lab.jobs()[0]["settings"].values()]
    assert settings == [(512, "test", 1), (3, "validation", 2)], "as each task wishes"


def test_a_quantized_base_is_the_control_of_a_run_that_trained_on_it(tmp_path: Path, monkeypatch: Any) -> None:
    lab = Lab(tmp_path, monkeypatch, adapter=True)
    lab.reconfigure(lora=LoraConfig(enabled=True, quantization="nf4", double_quantization=False))
    lab.evaluate("10")
    adapter = str(lab.run / "training_state" / "step_10" / "model")
    assert [(job["model"], job["adapter"]) for job in lab.models.jobs] == [("tiny", None), ("tiny", adapter)]
    for job in lab.jobs():
        lora = job["options"].lora
        assert (lora.quantization, lora.enabled, lora.double_quantization) == ("nf4", False, False)
    lab.evaluate("10", base=lab.other())
    assert lab.jobs()[0]["options"].lora is None, "another control is what it is"


def test_another_control_has_a_folder_of_its_own(lab: Lab) -> None:
    found = lab.evaluate("2", base=lab.other())
    assert lab.jobs()[0]["model"] == str(lab.folder / "other")
    assert [path.name.startswith("base_") for path in sorted((lab.out / lab.name).glob("*/"))] == [True, False]
    assert found.results["tasks.letters"]["step_2"]["delta"] == 0
    assert lab.evaluate("2", with_base=False).results["tasks.letters"]["step_2"].get("delta") is None


def test_a_checkpoint_that_is_damaged_is_left_out(lab: Lab) -> None:
    (lab.run / "training_state" / "step_2" / "model" / "config.json").write_text("[]")  # as long as it was
    (lab.run / "training_state" / "step_10" / "checksums.json").unlink()
    found = lab.evaluate()
    assert set(found.failures) == {"step_2", "step_10"}
    assert "config.json" in found.failures["step_2"]
    assert list(found.results["tasks.letters"]) == ["base", "step_final"]
    assert any(said.startswith("step_10 is left out: ") for said in lab.watch.said)


def test_what_is_asked_for_and_not_there(lab: Lab) -> None:
    for options, said in (
        ({"steps": "2,7"}, r"no .*step_7.*2, 10, final"),
        ({"steps": "newest"}, r"--steps 'newest': give all, or step numbers"),
        ({"timeout_s": 0}, "above 0 seconds"),
    ):
        with pytest.raises(UserError, match=said):
            lab.evaluate(**options)
    with pytest.raises(UserError, match="no such folder"):
        evaluate_run(lab.folder / "nothing")
    shutil.rmtree(lab.run / "training_state")
    with pytest.raises(UserError, match="no complete checkpoint"):
        lab.evaluate()
    assert lab.jobs() == [] and not lab.out.exists()


def test_what_a_run_has_evaluated_itself_is_kept_and_found_again(tmp_path: Path) -> None:
    # The same rows, sampling and weights: evaluating them again, gives the numbers of the run.
    make_run(tmp_path)
    sizes = {"prompts_per_step": 2, "num_generations": 2, "max_completion_length": 8, "max_steps": 1}
    spec, out = f"{tmp_path}/tasks.py:letters", str(tmp_path / "runs")
    made = train(spec, model="tiny", output_dir=out, eval={"size": 4}, device="cpu", progress=False, **sizes)
    kept = evaluate_run(made.run_dir)
    assert kept.kept == ["base", "step_final"]
    again = evaluate_run(made.run_dir, overwrite=True)
    assert again.failures == {}
    (entry,) = made.summary["tasks"].values()
    for found in (kept, again):
        (results,) = found.results.values()
        for step, phase in (("base", "initial"), ("step_final", "final")):
            mine = {name: value for name, value in results[step].items() if name not in ("timing", "identity")}
            assert mine == {name: value for name, value in entry[phase].items() if name in mine}
