import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, create_autospec

import httpx2
import pytest
import torch
import yaml
from huggingface_hub import HfApi, ModelCard, errors
from published_runs import BASE, FINAL, TASK, make_run
from safetensors import safe_open

from grpo_core.checkpoints import CheckpointError
from grpo_core.policy.load import load_policy
from grpo_core.publish import CardFacts, Published, PublishError, publish
from grpo_core.publish.card import public_command
from grpo_core.publish.evaluation_text import evaluation_section
from grpo_core.publish.publication import parse_target
from grpo_core.publish.source import Evaluated
from grpo_sdk.cli import main as entry
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.models import base_model, model_source

PROMPT_IDS = torch.tensor([[5, 17, 40, 9, 33, 8]])


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("full") / "run_1", value_head=True)


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("lora") / "run_1", lora=True)


@pytest.fixture(scope="module")
def made(full: Path, lora: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Published]:
    """Form -> what was published."""
    runs = {"full": (full, None), "merged": (lora, None), "adapter": (lora, False)}
    return {
        form: publish(run, str(tmp_path_factory.mktemp(form) / "out"), merge=merge)
        for form, (run, merge) in runs.items()
    }


def logits(model: str, adapter: Path | None = None, precision: str = "float32") -> torch.Tensor:
    policy = load_policy(model, adapter=None if adapter is None else str(adapter), device="cpu", precision=precision)
    with torch.no_grad():
        found: torch.Tensor = policy.model.eval()(PROMPT_IDS).logits
    return found


def test_a_full_model_is_the_checkpoints_bit_for_bit(full: Path, made: dict[str, Published]) -> None:
    whole, checkpoint = made["full"], full / "training_state" / "step_final" / "model"
    assert (whole.url, whole.form, whole.step) == (None, "full", 2)
    assert torch.equal(logits(str(whole.folder)), logits(str(checkpoint)))
    assert not torch.equal(logits(str(whole.folder)), logits("tiny")), "the run moved the weights"
    assert whole.bytes == sum(path.stat().st_size for path in whole.folder.iterdir())


def test_an_earlier_step_is_published_too(full: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()  # an empty folder is used
    folder = publish(full, str(tmp_path / "out"), step=1).folder
    assert torch.equal(logits(str(folder)), logits(str(full / "training_state" / "step_1" / "model")))
    assert "this model (step 1) was not" in section(folder, "Evaluation"), "the final numbers are of another step"
    assert ModelCard.load(folder / "README.md").data.eval_results is None


def test_a_merged_adapter_is_a_plain_model(lora: Path, made: dict[str, Published]) -> None:
    folder = made["merged"].folder
    expected = logits("tiny", lora / "training_state" / "step_final" / "model", "float64")
    assert made["merged"].form == "merged" and not (folder / "adapter_config.json").exists()
    # Merged weights are rounded to float32 once, and RMSNorm computes in float32: within 1e-5 of the largest logit.
    difference = (logits(str(folder), precision="float64") - expected).abs().max()
    assert difference < 1e-5 * expected.abs().max()
    assert not torch.allclose(logits("tiny", precision="float64"), expected, rtol=0, atol=0.1), "the adapter does it"
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert not [name for name in weights.keys() if "lm_head" in name]  # noqa: SIM118 - it is no mapping


OF_EMBEDDINGS = pytest.mark.filterwarnings(  # what PEFT warns of is what is tested
    "ignore:Model (has|with) `tie_word_embeddings=True`:UserWarning",
    "ignore:Setting `save_embedding_layers`:UserWarning",
)


@OF_EMBEDDINGS
def test_an_adapter_of_tied_embeddings_is_merged_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run_1", lora=True, target_modules=["q_proj", "embed_tokens"])
    merged = publish(run, str(tmp_path / "out"))
    expected = logits("tiny", run / "training_state" / "step_final" / "model")
    assert (logits(str(merged.folder)) - expected).abs().max() < 1e-5 * expected.abs().max()
    assert json.loads((merged.folder / "config.json").read_text())["tie_word_embeddings"] is False
    assert re.fullmatch(r"with the trained model: within \de-\d\d of .* on 8 prompts, \d+\.\d s", merged.compared)
    monkeypatch.setattr("grpo_core.publish.weights._merged", lambda model: model.merge_and_unload())
    with pytest.raises(UserError, match=r"another model.*--keep-adapter"):
        publish(run, str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()
    kept = publish(run, str(tmp_path / "other"), merge=False)
    assert kept.compared.startswith("with the trained model: within 0e+00")


def test_a_kept_adapter_names_its_base(lora: Path, made: dict[str, Published], tmp_path: Path) -> None:
    folder, state = made["adapter"].folder, lora / "training_state"
    expected = logits("tiny", state / "step_final" / "model")
    assert made["adapter"].form == "adapter" and not (folder / "model.safetensors").exists()
    assert model_source(str(folder)).kind == "adapter" and base_model(str(folder)) == "tiny"
    assert torch.equal(logits(str(folder)), expected), "--model ./out loads the base and the adapter"
    assert torch.equal(logits("tiny", folder), expected), "--model tiny --adapter ./out does the same"
    policy = load_policy(str(folder), device="cpu")
    assert policy.is_adapter and policy.parameters(), "the adapter's weights take a gradient"
    # An adapter beside an adapter takes its place, so that a run which started from a published one can be resumed.
    earlier = state / "step_1" / "model"
    assert torch.equal(logits(str(folder), earlier), logits("tiny", earlier))
    assert not torch.equal(logits("tiny", earlier), expected)
    settings = shutil.copytree(folder, tmp_path / "copy") / "adapter_config.json"
    settings.write_text(settings.read_text().replace('"tiny"', json.dumps(str(folder))))
    with pytest.raises(UserError, match="which is an adapter itself: merge that one first"):
        load_policy(str(tmp_path / "copy"), device="cpu")


@pytest.mark.parametrize("form", ["full", "merged", "adapter"])
def test_nothing_of_this_machine_is_published(form: str, full: Path, lora: Path, made: dict[str, Published]) -> None:
    folder = made[form].folder
    paths = (full, full.parent, lora, lora.parent, folder.parent, model_source("tiny").location, Path.cwd())
    for file in folder.iterdir():
        content = file.read_bytes()
        assert not any(str(path).encode() in content for path in paths), f"{file.name} names a path"
        assert file.stat().st_mode & 0o777 == 0o644, f"{file.name} can be read by those it is for"
    assert not (folder / "value_head.safetensors").exists() and (folder / "tokenizer.json").is_file()
    assert ("value head" in section(folder, "Limits")) == (form == "full"), "which is left out"
    assert [path.name for path in folder.parent.iterdir()] == ["out"], "nothing is left beside it"
    from transformers import GenerationConfig

    generation = GenerationConfig.from_pretrained(folder)
    assert (generation.do_sample, generation.temperature, generation.top_k) == (True, 0.8, 20)
    assert (generation.top_p, generation.max_new_tokens) == (1.0, 12)
    assert generation.eos_token_id == 1, "what ends a text is the model's"


def section(folder: Path, title: str) -> str:
    _, found, rest = (folder / "README.md").read_text().partition(f"\n## {title}\n")
    assert found
    return rest.partition("\n## ")[0]


def test_the_cards_front_matter_is_what_the_hub_reads(lora: Path, tmp_path: Path) -> None:
    folder = publish(lora, str(tmp_path / "out"), merge=False, facts=CardFacts(datasets=("owner/rows",))).folder
    data = ModelCard.load(folder / "README.md").data
    assert (data.base_model, data.library_name, data.pipeline_tag) == ("tiny", "peft", "text-generation")
    assert (data.license, data.datasets) == ("apache-2.0", ["owner/rows"]), "the embedded model has the package's"
    assert {"grpo", "reinforcement-learning", "lora"} <= set(data.tags or [])
    solved, reward = data.eval_results or []
    assert (solved.metric_type, solved.metric_value) == ("solved_rate", FINAL["solved_rate"])
    assert (reward.metric_type, reward.metric_value) == ("mean_reward", FINAL["mean_reward"])
    assert solved.metric_name == "solved rate, greedily, 95% interval [0.500, 0.900]"
    assert solved.dataset_split == "test"
    assert solved.dataset_args == {"identity": "0123456789abcdef", "rows": 16}
    assert solved.metric_args == {"temperature": 0.0, "completions_per_row": 1}


def test_the_card_says_how_it_was_measured_and_made(made: dict[str, Published]) -> None:
    folder = made["merged"].folder
    evaluation, training = section(folder, "Evaluation"), section(folder, "Training")

    # base → final with intervals and n, and the difference on the same rows
    assert (
        "| `math.arithmetic` | test | greedily | 16 (1 not scored) | 0.500 [0.250, 0.750] | 0.750 [0.500, 0.900] | "
        "+0.250 [0.100, 0.400] | 0.600 [0.500, 0.700] → 0.600 [0.500, 0.700] |"
    ) in evaluation
    assert f"| `{TASK}` | 1 | `0123456789abcdef` |" in section(folder, "Task")
    for text in (
        *("\ngrpo-run --seed 3\n", "grpo run --config grpo_config.yaml", "| `trainer.temperature` | `0.8` |"),
        *("| torch | `2.13.0` |", "base model `tiny`, with the adapter off", "β is 0.1"),
        "At step 2 it was 0.02 nats per token",
    ):
        assert text in training
    assert public_command("grpo-run 'x") == public_command(None) == "", "damaged or missing"
    config = yaml.safe_load((folder / "grpo_config.yaml").read_text())
    assert (config["task"], config["seed"], config["output_dir"]) == (TASK, 3, "training_runs")


@pytest.mark.parametrize(("split", "also_trained", "rows", "text"), [
    ("test", {"n": 0, "of": 16}, 16, "Held-out rows, none of which is trained on; the same ones for base and"),
    ("test", {"n": 3, "of": 16}, 16, "3 of 16 rows of `t` are also trained on: what these show may be memory."),
    ("test", {"n": 0, "of": 16}, 512, "Whether rows of `t` are also trained on is not known."),
    ("test", None, 16, "Whether rows of `t` are also trained on is not known."),
    ("train", {"n": 16, "of": 16}, 16, "Those of `t` are of the training split: what they show may be memory."),
])  # fmt: skip
def test_the_card_claims_what_is_known(split: str, also_trained: dict[str, int] | None, rows: int, text: str) -> None:
    result = {**BASE, "split": split, "n": 16}
    summary = {"tasks": {"t": {"final": result, **({"also_trained": also_trained} if also_trained else {})}}}
    evaluated = Evaluated("t", {}, {**result, "n": rows})
    source: Any = SimpleNamespace(step=5, summary=summary, evaluated=lambda: [evaluated])
    described = evaluation_section(source)
    assert text in described
    assert ("none of which is trained on" in described) == text.startswith("Held-out")


def test_a_hostile_name_is_only_text_in_the_card(full: Path, tmp_path: Path) -> None:
    summary = json.loads((full / "summary.json").read_text())
    hostile = "x`|</td><script>\n---\nlicense: mit"
    hurt = shutil.copytree(full, tmp_path / "run", symlinks=True)
    entry_of_task = summary["tasks"].pop("math.arithmetic")
    entry_of_task["final"]["split"] = "<img src=x>|"
    summary["tasks"][hostile] = entry_of_task
    (hurt / "summary.json").write_text(json.dumps(summary))

    folder = publish(hurt, str(tmp_path / "out")).folder

    card = ModelCard.load(folder / "README.md")
    assert card.data.license == "apache-2.0"
    row, note = [line for line in section(folder, "Evaluation").splitlines() if "script" in line]
    assert "of `x'\\|</td><script> --- license: mit` are also trained on" in note
    assert row.startswith("| `x'\\|</td><script> --- license: mit` | \\<img src=x\\>\\| |")


def test_a_folder_that_holds_something_is_left_alone(full: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "thesis.txt").write_text("years of work")

    with pytest.raises(UserError, match=r"is not empty, and nothing was written.*--force"):
        publish(full, str(target))
    assert [path.name for path in target.iterdir()] == ["thesis.txt"]
    publish(full, str(target), force=True)
    assert (target / "README.md").is_file() and not (target / "thesis.txt").exists()


def test_what_cannot_be_published_is_refused(full: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(UserError, match="there is no adapter to keep"):
        publish(full, str(tmp_path / "out"), merge=False)
    with pytest.raises(UserError, match="holds the run"):
        publish(full, str(full.parent), force=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(UserError, match="holds the working folder"):
        publish(full, str(tmp_path), force=True)


def test_what_cannot_be_written_is_not_there_in_part(full: Path, tmp_path: Path, monkeypatch: Any) -> None:
    full_disk = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("grpo_core.publish.publication.write_model", full_disk)
    with pytest.raises(PublishError, match=r"No space left on device\. Nothing was left behind"):
        publish(full, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_refused(full: Path, tmp_path: Path) -> None:
    hurt = shutil.copytree(full, tmp_path / "run", symlinks=True)
    weights = hurt / "training_state" / "step_final" / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)

    with pytest.raises(CheckpointError, match=r"model\.safetensors.*last good one is .*1"):
        publish(hurt, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_target_is_a_repository_of_the_hub_or_a_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="give a folder"):
        parse_target("", tmp_path)
    on_hub, here = parse_target("hub:owner/name", tmp_path / "run"), parse_target("./owner/name", tmp_path / "run")
    assert (on_hub.repo_id, on_hub.folder) == ("owner/name", tmp_path / "run" / "published" / "owner--name")
    assert (here.repo_id, here.folder) == (None, tmp_path / "owner/name")


def hub(there: Sequence[str] = (".gitattributes",), problem: Exception | None = None) -> Any:
    """Stands where the hub's client is, and takes what that one takes."""
    fake = create_autospec(HfApi, instance=True)
    fake.whoami.side_effect = problem
    fake.create_repo.return_value = "https://hub/owner/name"
    fake.list_repo_files.return_value = list(there)
    return fake


def refused(status: int, message: str = "no") -> errors.HfHubHTTPError:
    response = httpx2.Response(status, request=httpx2.Request("POST", "https://hub/api"))
    return errors.HfHubHTTPError(message, response=response)


def test_upload_makes_a_repository_and_fills_it_but_not_one_that_holds_files(full: Path) -> None:
    empty, filled = hub(), hub([".gitattributes", "model.safetensors"])
    made = publish(full, "owner/name", private=True, api=empty)
    assert (made.url, made.folder) == ("https://hub/owner/name", full / "published" / "owner--name")
    assert empty.create_repo.call_args.kwargs["private"] is True
    assert empty.upload_folder.call_args.kwargs["folder_path"] == made.folder
    files = {path.name for path in made.folder.iterdir()}
    assert {"README.md", "config.json", "generation_config.json", "model.safetensors"} <= files

    with pytest.raises(UserError, match="holds 2 files already: nothing was uploaded"):
        publish(full, "owner/name", api=filled)
    assert not filled.upload_folder.called
    publish(full, "owner/name", force=True, api=filled)
    assert filled.upload_folder.called


@pytest.mark.parametrize(("problem", "kind", "message"), [
    (errors.LocalTokenNotFoundError("x"), UserError, "no Hugging Face login: run 'hf auth login'"),
    (errors.OfflineModeIsEnabled("x"), UserError, "HF_HUB_OFFLINE=1 forbids the network"),
    (refused(401), UserError, "does not accept this token"),
    (refused(403), UserError, "may not write to owner/name"),
    (refused(500, "broken hf_SECRET\nmore"), PublishError, r"HTTP 500\): broken …\. The model is complete"),
    (httpx2.ConnectError("no route, hf_SECRET"), PublishError, r"cannot be reached \(no route, …\)"),
    (TimeoutError(), PublishError, r"cannot be reached \(TimeoutError\)"),
])  # fmt: skip
def test_a_failed_upload_is_one_line_and_the_folder_stays(
    full: Path, problem: Exception, kind: type[Exception], message: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_SECRET")
    with pytest.raises(kind, match=message) as raised:
        publish(full, "owner/name", api=hub(problem=problem))
    assert "hf_SECRET" not in str(raised.value) and "\n" not in str(raised.value)
    assert str(full / "published" / "owner--name") in str(raised.value)
    assert (full / "published" / "owner--name" / "README.md").is_file()


def test_the_real_client_without_a_hub(full: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_SECRET")
    assert entry.main(["publish", str(full), "owner/other"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and "hf_SECRET" not in printed.err
    assert re.fullmatch(r"error: the hub cannot be reached \(.*\n", printed.err)
    assert (full / "published" / "owner--other" / "model.safetensors").is_file()


def test_an_adapter_on_a_local_model_is_merged_or_kept(made: dict[str, Published], tmp_path: Path) -> None:
    base = made["full"].folder
    local = make_run(tmp_path / "run", lora=True, model=str(base))
    with pytest.raises(UserError, match="is a folder of this machine"):
        publish(local, "owner/name", merge=False, api=hub())
    expected = logits(str(base), local / "training_state" / "step_final" / "model", "float64")

    merged = publish(local, str(tmp_path / "merged")).folder
    kept = publish(local, str(tmp_path / "kept"), merge=False).folder

    assert torch.allclose(logits(str(merged), precision="float64"), expected, rtol=0, atol=1e-5)
    assert torch.equal(logits(str(kept), precision="float64"), expected)
    card = ModelCard.load(merged / "README.md")
    assert card.data.base_model is None, "a folder of this machine is no model of the hub"
    assert card.data.license == "apache-2.0", "as the base's own card says"
    assert str(base) not in (merged / "README.md").read_text()


def test_the_command_prints_what_comes_next(full: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.main(["publish", str(full), "./out"]) == 0
    published, following = capsys.readouterr().out.splitlines()
    assert published.split()[:4] == ["published", "./out", "step", "2"]
    assert following.split(maxsplit=1)[1] == (
        f"grpo eval --task '{TASK}' --model ./out --size 16 --split test trainer.max_completion_length=12"
    )
    assert following.split(maxsplit=1)[1] in (tmp_path / "out" / "README.md").read_text()

    assert entry.main(["publish", str(full), "./out", "--force", "--step", "1", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["folder"], made["form"], made["step"], made["url"]) == (str(tmp_path / "out"), "full", 1, None)
