"""The model card: what the model is, what it can do and how that was measured, and how to make it again. No torch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_core.config import flatten
from grpo_core.publish.evaluation_text import code, eval_results, evaluation_section, one_line, plain
from grpo_core.publish.source import Source
from grpo_core.publish.weights import Form
from grpo_core.tracking.runs import is_number
from grpo_sdk import __version__
from grpo_sdk.display.invocation import without
from grpo_sdk.display.text import format_value
from grpo_sdk.errors import UserError
from grpo_sdk.plugins.models import check_hub_id
from grpo_sdk.task.spec import parse_task_specs

CONFIG_FILE = "grpo_config.yaml"
"""File with the run's configuration, written beside the model."""

HUB_ROWS = "hub:"
"""Prefix of a task's `path` that names a dataset on the hub: `hub:owner/name[/config][/split]`."""

FORMS: Mapping[Form, str] = {
    "full": "all weights were trained",
    "merged": "a LoRA adapter was trained and is merged into the base's weights here",
    "adapter": "a LoRA adapter; the base model is needed beside it",
}

SETTINGS = (
    "trainer.loss_type", "trainer.baseline", "trainer.scale_rewards", "trainer.num_generations",
    "trainer.prompts_per_step", "trainer.num_iterations", "trainer.learning_rate", "trainer.lr_scheduler_type",
    "trainer.max_completion_length", "trainer.temperature", "seed",
)  # fmt: skip
"""Settings shown in the card; `CONFIG_FILE` has all of them."""

_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a model card states beyond what the run itself knows.

    Attributes:
        license: License of the model; by default that of its base, where it is known.
        datasets: Hub ids of the training data, in addition to those named in the tasks' specs.
        eval_dir: Folder with the results of `grpo eval --run`; by default the run's `eval_runs`, which need not exist.
    """

    license: str | None = None
    datasets: Sequence[str] = ()
    eval_dir: Path | str | None = None

    def check(self) -> None:
        """Refuse what the hub would refuse, or what is missing.

        Raises:
            UserError: a license or a dataset is no id of the hub, or `eval_dir` is no folder.
        """
        if self.license is not None and not _LICENSE.fullmatch(self.license):
            raise UserError(
                f"--license {self.license[:100]!r}: write it as the hub does: apache-2.0, mit, llama3.1, other."
            )
        for name in self.datasets:
            check_hub_id(name, "--dataset")
        if self.eval_dir is not None and not Path(self.eval_dir).is_dir():
            what = "it is a file" if Path(self.eval_dir).exists() else "there is no such folder"
            raise UserError(f"--eval-dir {self.eval_dir}: {what}.")


def model_card(source: Source, form: Form, *, name: str, facts: CardFacts) -> str:
    """Return the README.md of a published model.

    Args:
        source: The checkpoint and its run.
        form: Form in which the model is published.
        name: Name of the model: its hub id, or the name of its folder.
        facts: License, datasets and evaluations.
    """
    from huggingface_hub import ModelCardData

    data = ModelCardData(
        base_model=source.base_name if source.base is not None and source.base.kind in ("hub", "embedded") else None,
        datasets=list(dict.fromkeys([*facts.datasets, *_datasets(source)])) or None,
        eval_results=eval_results(source) or None,
        library_name="peft" if form == "adapter" else "transformers",
        license=facts.license or _license(source),
        model_name=name,
        pipeline_tag="text-generation",
        tags=["grpo", "grpo-core", "reinforcement-learning", *(["lora"] if source.is_adapter else [])],
    )
    sections = (
        _title(source, form, name),
        evaluation_section(source),
        _usage(source, form, name),
        _tasks(source),
        _training(source),
        _limits(source, form),
    )
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n"


def evaluation_command(source: Source, model: str) -> str:
    """Return the command that repeats the run's held-out evaluation on a published model.

    What config.yaml leaves open is the task's own wish, which an option would override.
    """
    config, settings = source.config, source.config.eval
    given = settings.model_fields_set
    words = ["grpo", "eval", "--task", _without_split(config.task), "--model", model]
    if "size" in given:
        words += ["--size", "null" if settings.size is None else str(settings.size)]
    words += ["--split", settings.split] if "split" in given else []
    is_greedy = settings.temperature == 0 and "temperature" in given
    if not is_greedy:
        sampling = {"n": settings.n, "temperature": settings.temperature, "top_p": settings.top_p}
        for name, value in sampling.items():
            words += [f"--{name.replace('_', '-')}", f"{value:g}"] if name in given else []
        words += ["--seed", str(config.seed)]
    if settings.subset_frac is not None:
        words += ["--subset-frac", f"{settings.subset_frac:g}"]
    if settings.max_completion_length is not None:
        words.append(f"eval.max_completion_length={settings.max_completion_length}")
    else:
        words.append(f"trainer.max_completion_length={config.trainer.max_completion_length}")
    return shlex.join(words)


def _without_split(task: str) -> str:
    """The spec of a training without the splits that it trains on: the evaluation's is another setting."""
    specs = {str(spec): spec for spec in (spec.with_options(split=None) for spec in parse_task_specs(task))}
    return ",".join(spec.weighted for spec in specs.values())


def _title(source: Source, form: Form, name: str) -> str:
    steps = f"{source.step} step{'' if source.step == 1 else 's'}"
    planned = source.info.get("planned_steps")
    of = f" of {planned} planned" if isinstance(planned, int) and planned != source.step else ""
    return (
        f"# {plain(name)}\n\n"
        f"{code(_base_shown(source))} after {steps}{of} of group-relative policy optimisation (GRPO) on "
        f"{code(source.config.task)}, by grpo-core {__version__}: {FORMS[form]}."
    )


def _usage(source: Source, form: Form, name: str) -> str:
    local = f"./{name.rpartition('/')[2]}"
    loaded = name if "/" in name else local
    base = _base_shown(source)
    if form != "adapter":
        snippet = f"""\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained({loaded!r})
tokenizer = AutoTokenizer.from_pretrained({loaded!r})
"""
    elif source.base is not None and source.base.kind == "embedded":
        snippet = f"""\
from grpo_core.policy.load import load_policy  # its base {base!r} is embedded in grpo-core

policy = load_policy({local!r})
model, tokenizer = policy.model, policy.tokenizer
"""
    else:
        snippet = f"""\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained({base!r})
model = PeftModel.from_pretrained(base, {loaded!r})
tokenizer = AutoTokenizer.from_pretrained({loaded!r})
"""
    return (
        f"## Use\n\n```python\n{snippet}```\n\n`generation_config.json` samples as the run did. Prompts are those of "
        "the task: `grpo sample` shows them.\n\nTo repeat the evaluation, where the model is in a folder:\n\n"
        f"```bash\n{evaluation_command(source, local)}\n```"
    )


def _tasks(source: Source) -> str:
    lines = ["## Task", "", "| spec | weight | identity |", "|---|---|---|"]
    identities = source.identities
    for spec in parse_task_specs(source.config.task):
        identity = identities.get(str(spec), "-")
        lines.append(f"| {code(str(spec))} | {spec.weight:g} | {code(identity)} |")
    lines += [
        "",
        "The identity is a hash of the task's options, rows, prompts, rewards and version: a result is comparable with "
        "another one of the same identity. `grpo tasks show SPEC` prints that of an installed task.",
    ]
    return "\n".join(lines)


def _training(source: Source) -> str:
    flat = flatten(source.config)
    command = public_command(source.info.get("command"))
    lines = ["## Training", "", "```bash"]
    if command:
        lines.append(one_line(command))
        lines.append("# every setting as it was resolved, whatever the defaults are by now:")
    lines += [f"grpo run --config {CONFIG_FILE}", "```", "", "| setting | value |", "|---|---|"]
    lines += [f"| `{key}` | {code(format_value(flat[key]))} |" for key in SETTINGS if key in flat]
    lines += ["", _kl(source), "", "| made with | |", "|---|---|"]
    facts = dict(source.info.get("versions") or source.summary.get("versions") or {})
    hardware = source.info.get("hardware") or {}
    facts |= {"device": hardware.get("name") or hardware.get("device")}
    prompts = source.step * source.config.trainer.prompts_per_step
    facts |= {"prompts in training": prompts, "completion tokens": source.summary.get("tokens")}
    facts |= {"seconds": source.summary.get("seconds")} if source.summary.get("steps") == source.step else {}
    lines += [f"| {plain(key)} | {code(value)} |" for key, value in facts.items() if value is not None]
    return "\n".join(lines)


def public_command(command: object) -> str:
    """Return the run's command without the folder that it wrote to; empty if none was stored, or it is damaged."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # a quotation without an end
        return ""
    return shlex.join(without(words, "--output-dir", "output_dir"))


def _kl(source: Source) -> str:
    trainer = source.config.trainer
    measured = source.metrics.get("kl")
    last = f" At step {source.metrics.get('step')} it was {measured:.4g} nats per token." if is_number(measured) else ""
    anchor = {
        None: "There was no reference policy",
        "base": f"The reference is the base model {code(_base_shown(source))}, with the adapter off",
        "model": "The reference is a frozen copy of the starting model",
    }.get((source.reference or {}).get("kind"), "The reference is a frozen copy of the starting adapter")
    if source.reference is None:
        return f"{anchor}: no KL penalty (`trainer.beta` is {trainer.beta:g}), and the KL was not measured."
    weight = f"the penalty's weight β is {trainer.beta:g}" if trainer.beta else "there is no penalty (β is 0)"
    return f"{anchor}; the KL's estimator is `{trainer.kl}`, and {weight} (controller `{trainer.kl_controller}`).{last}"


def _limits(source: Source, form: Form) -> str:
    notes = [
        "What was measured is said above, on rows like those of training. Other abilities of the base were not "
        "measured and may be worse.",
        "A reward is not the truth: a verifier can be satisfied by answers that a person would refuse.",
    ]
    if source.summary.get("interrupted") and source.summary.get("steps") == source.step:
        notes.append("The run was stopped before its planned end.")
    if form == "merged":
        notes.append(
            "Merging adds the adapter to the weights once and for all; logits differ from the adapter's by rounding."
        )
    if form == "adapter" and source.base is not None and source.base.kind == "folder":
        notes.append("The adapter's base is a folder of the machine that trained it.")
    if (source.model_dir / "value_head.safetensors").is_file():
        notes.append(
            "The run also trained a value head, for its advantages; it is left out, since nothing is sampled by it."
        )
    return "## Limits\n\n" + "\n".join(f"* {note}" for note in notes)


def _datasets(source: Source) -> Iterable[str]:
    for spec in parse_task_specs(source.config.task):
        path = spec.options.get("path", "")
        if path.startswith(HUB_ROWS):
            yield "/".join(path.removeprefix(HUB_ROWS).split("/")[:2])


def _license(source: Source) -> str | None:
    """Return the license in the base's model card, if that is on this machine; the embedded model has grpo-core's."""
    import yaml
    from huggingface_hub.repocard import metadata_load

    base = source.base
    if base and base.kind == "embedded" and Path(base.location).is_relative_to(Path(__file__).parents[1]):
        return "apache-2.0"
    if (card := source.base_file("README.md")) is None:
        return None
    try:
        metadata = metadata_load(card)
    except (OSError, ValueError, yaml.YAMLError):  # a card from outside, which may hold anything
        return None
    license = (metadata or {}).get("license")
    return license if isinstance(license, str) else None


def _base_shown(source: Source) -> str:
    """Return the name of the base; for a local folder only the last part, since its location is private."""
    is_local = source.base_name.startswith((".", "/", "~")) or source.base_name.endswith(".gguf")
    return Path(source.base_name).name if is_local else source.base_name
