"""Write the reference pages that are read off the code: `python docs/generate.py`, with `--check` to compare only."""

from __future__ import annotations

import configparser
import importlib
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import escape

import click
from gym_findings import findings_page
from kl_estimators import kl_page, kl_picture
from markdown_tables import line, table
from metric_texts import EVALUATION_SECTION, EVALUATIONS, NOT_KEPT, SECTIONS
from python_api import hooks_page
from python_api import pages as api_pages
from trainers import trainers_page

from grpo_core.cli.profiles import EXAMPLE_MODELS, memory_range, settings_for
from grpo_core.config.keys import Key, keys, members, sections
from grpo_core.config.models import RunConfig
from grpo_core.config.recipes import RECIPES
from grpo_core.profiles.gpu import BUILT_IN as GPU_PROFILES
from grpo_core.profiles.presets import PRESETS
from grpo_core.profiles.presets import SOURCE as PRESET_SOURCE
from grpo_core.tracking.aliases import ALIASES as METRIC_ALIASES
from grpo_core.tracking.diagnoses import DIAGNOSES
from grpo_core.training.catalogue import CATALOGUE
from grpo_sdk.cli.group import COMMANDS, load_command
from grpo_sdk.cli.main import grpo
from grpo_sdk.display.text import format_value
from grpo_sdk.environment import RESERVED_ENVIRONMENT
from grpo_sdk.errors import ExitCode
from grpo_sdk.plugins import variants as registry
from grpo_sdk.plugins.variant import Aggregation

REFERENCE = Path(__file__).parent / "reference"

ALGORITHMS = Path(__file__).parent / "templates" / "algorithms.md.in"
"""The page of the algorithms, with `{{name}}` where something is read off the code."""

PROFILES = ALGORITHMS.with_name("profiles.md.in")
"""The page of the GPU profiles and the presets, likewise."""

CONTRACTS = Path(__file__).parents[1] / ".importlinter"

PICTURE_WIDTH, PICTURE_ROW, PICTURE_MARGIN = 760, 38, 12
"""Of the picture of the packages, in pixels."""

PICTURE_STYLE = (
    "text{font:13px sans-serif;text-anchor:middle;fill:#1f2328}.key{font-size:12px;fill:#59636e}"
    "rect{stroke:#59636e;fill:#fff}.light{fill:#ddf4ff}.plugin{stroke-dasharray:4 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.key{fill:#9198a1}rect{fill:#0d1117}.light{fill:#12314d}}"
)

HELP_WIDTH = 100
"""Columns of the help texts, whatever terminal this runs in."""

TEXT_WIDTH = 120
"""Columns of running text."""

CONFIG_INTRODUCTION = """\
# Configuration

<!-- Written by docs/generate.py from grpo_core/config/models.py and trainer.py: change it there. -->

A setting is a dotted key. It can come from these places, and the first one wins:

1. the command line: `grpo run trainer.learning_rate=5e-6`, or an option such as `--max-steps 100`;
2. the environment: `GRPO_TRAINER__LEARNING_RATE=5e-6` (the key in capitals, `__` for the dot; `GRPO_SEED=1`);
3. a file `.env` in the working folder, with the same names;
4. a YAML file: `grpo run --config run.yaml`;
5. a preset: `--preset baseline`;
6. a [recipe](../how-to/recipes.md): `--recipe dapo`, or the key `recipe`; what defines a recipe cannot be changed;
7. the values recommended for the model: of an embedded model, or from the `warm_start.json` in its folder, else a
   learning rate by its size;
8. the [profile](../how-to/hardware.md) of the GPU;
9. the default below.

`grpo run --show-config` prints every setting with its source, `--json` the same as JSON. A run writes its resolved
settings to `config.yaml` in its folder, and `grpo run --config …/config.yaml` repeats it. Unknown names and invalid
values are refused before a model is loaded, with the closest match.

```yaml
task: math.arithmetic:2,math.echo:1
seed: 1
trainer:
  num_generations: 16
  learning_rate: 5e-6
  lr_scheduler_type: cosine
lora:
  enabled: true
```

Values are read as YAML 1.2: `1e-6` is a number, `true` and `false` are the only booleans, `null` leaves a setting open.
Set only one of `trainer.max_steps` and `trainer.num_train_epochs`, of `trainer.warmup_steps` and
`trainer.warmup_ratio`, and of `trainer.micro_batch_size` and `trainer.micro_batch_prompts`; if both are set, the one
from the higher place wins. Arguments of a variant are keys under `trainer.loss_args`, `trainer.kl_args`,
`trainer.advantage_args` and the controllers' `…_args`: `trainer.advantage_args.alpha=0.05`. Names of other systems
work, too, if they [mean the same](../how-to/recipes.md#other-names).
"""

CLI_INTRODUCTION = """\
# Command line

<!-- Written by docs/generate.py from the commands' own help: change it there. -->

Every command and option of grpo-sdk and grpo-core, as `--help` shows them; plugins add `grpo chess` and `grpo games`.
`grpo-run` is short for `grpo run`.

Results go to stdout and progress to stderr. With `--json`, stdout has only JSON. In a pipe, progress is one plain line
per logged step, without control codes, and tables have 120 columns, or `COLUMNS`. `NO_COLOR=1` turns colours off, and
`GRPO_DEBUG=1` shows the traceback of an error.

## Completion in the shell

```text
eval "$(_GRPO_COMPLETE=bash_source grpo)"
eval "$(_GRPO_RUN_COMPLETE=bash_source grpo-run)"
```

These lines in `.bashrc` complete commands and options; [click](https://click.palletsprojects.com/en/stable/shell-completion/)
has those for zsh and fish.
"""

WARNINGS_INTRODUCTION = """\
# Warnings

<!-- Written by docs/generate.py from grpo_core/tracking/diagnoses.py and hacking.py: change it there. -->

Look up when a run warns, and why at this threshold. A run checks [its metrics](metrics.md) before its first step, after
each logged step and after each evaluation. A warning says what was seen, why it matters and what to try, and names its
section in [troubleshooting](../how-to/troubleshooting.md). It is repeated only if its problem was gone for 20 logged
steps (40 after the second warning, 80 after the third) and has returned. Warnings are printed, are written to
`logs/events.jsonl` and `summary.json`, are sent to trackers and [callbacks](../how-to/tracking.md#warnings), and are
shown by `grpo runs show`. `tracking.monitor=false` turns them off.

A comparison with the start compares the means of the first and the newest ten logged steps. A change counts if it is
above three standard errors.
"""

METRICS_INTRODUCTION = """\
# Metrics

<!-- Written by docs/generate.py from grpo_core/training/catalogue.py and docs/metric_texts.py: change it there. -->

Look up every number in `logs/train_log.jsonl` and, in the last section, in `logs/evaluations.jsonl`. A number that does
not exist in a step (a mean over nothing) is `null`, or is left out if nothing was computed at all. A task may also log
[its own numbers](task-contract.md#metrics-of-a-batch).
"""

OTHER_NAMES = """\
The names of these metrics in the reference systems. `tracking.reference_names=true` writes them to trackers under \
both names, and `grpo runs show RUN --aliases` shows them. A name that both have is not listed.\
"""

AGGREGATIONS: Mapping[Aggregation, tuple[str, str]] = {
    "constant": ("1 / (B · `trainer.max_completion_length`)", "Dr. GRPO, arXiv 2503.20783, section 3.2"),
    "token_mean": ("1 / ΣT", "DAPO, arXiv 2503.14476, section 3.3"),
    "sequence_mean": ("1 / (B · T_i)", "GRPO, arXiv 2402.03300, equation 3"),
    "sequence_sum": ("1 / B", "RLOO, arXiv 2402.14740, section 2.2"),
    "group_max": ("1 / (B · longest completion of its prompt)", "RL_Practice; it weighs prompts differently"),
    "token_sum": ("1", "a plain sum, for code that divides by itself"),
}
"""Aggregation -> weight of a token, source."""

SHARED_OPTIONS = {
    "epsilon": "ε of the formula",
    "epsilon_high": "ε_high of the formula; null is ε",
    "delta": "upper bound of the unclipped term (INTELLECT-2, arXiv 2505.07291); null is none",
    "dual_clip": "bound c > 1 of the loss of a token with A < 0: at most c·|A| (arXiv 1912.09729); null is none",
    "max_log_ratio": "log ρ is clamped to ± this before exp (verl); null is not at all (TRL)",
}
"""Options of several losses -> their meaning."""

OWN_OPTIONS = {
    ("cispo", "epsilon_low"): "ε_low; null is no lower bound",
    ("sapo", "temperature_pos"): "τ₊",
    ("sapo", "temperature_neg"): "τ₋",
    ("dro", "beta"): "β",
    ("dppo", "divergence"): "D: total variation, or the binary KL",
    ("dppo", "max_ratio"): "upper bound of ρ; null is none",
    ("vespo", "k_pos"): "k where A ≥ 0",
    ("vespo", "lambda_pos"): "λ where A ≥ 0",
    ("vespo", "k_neg"): "k where A < 0",
    ("vespo", "lambda_neg"): "λ where A < 0",
    ("constant", "warmup_steps"): "optimizer steps of warm-up",
    ("cosine", "warmup_steps"): "optimizer steps of warm-up",
}
"""(Variant, option) -> its meaning, where no argument's line says it."""

SETTINGS = {
    ("loss", "epsilon"): "trainer.epsilon",
    ("loss", "epsilon_high"): "trainer.epsilon_high",
    ("value", "gamma"): "trainer.gae_gamma",
    ("value", "lam"): "trainer.gae_lambda",
    ("schedule", "warmup_steps"): "trainer.warmup_steps",
}
"""(Kind or variant, option) -> the setting that gives it in a run."""

SUMMARIES = {("kl", "full"): "KL over the whole vocabulary at each token: exact, without the noise of the sample."}
"""(Kind, name) -> what a variant is, where the docstring speaks of how it is computed."""

INPUTS = {
    "keys": "each completion's task",
    "roles": "each completion's task and role",
    "state": "running values, which are saved with the run",
    "lengths": "the completions' tokens",
    "greedy_rewards": "the reward of a greedy completion per prompt, which is sampled for it",
    "reward_parts": "the raw value of every reward function",
    "part_weights": "its weight in the completion's task",
    "mask": "which tokens count",
    "token_penalties": "β·KL per token where `trainer.kl_placement=reward`",
    "values": "the values of a head: `trainer.value_head=true`",
}
"""What the trainer hands a baseline that asks for it."""


def config_page() -> str:
    """The page of every setting."""
    groups = {"": [key for key in keys().values() if not key.section]}
    groups |= {section: [key for key in keys().values() if key.section == section] for section in sections()}
    parts = [CONFIG_INTRODUCTION]
    for section, inside in groups.items():
        title = f"`{section}`: {RunConfig.model_fields[section].description}" if section else "The run"
        parts.append(f"## {title.rstrip('.')}\n\n{table(('Setting', 'Default', 'Allowed', ''), map(_row, inside))}")
    reserved = ((f"`{name}`", meaning) for name, meaning in RESERVED_ENVIRONMENT.items())
    parts.append(f"## Environment variables that are no settings\n\n{table(('Variable', ''), reserved)}")
    return "\n".join(parts)


def cli_page() -> str:
    """The page of every command."""
    codes = ((str(int(code)), code.meaning) for code in ExitCode)
    parts = [CLI_INTRODUCTION, f"## Exit codes\n\n{table(('Code', 'Meaning'), codes)}"]
    # The options of `grpo` itself, so that a command's help is what a user sees.
    settings = {**grpo.context_settings, "terminal_width": HELP_WIDTH, "max_content_width": HELP_WIDTH}
    context = click.Context(grpo, info_name="grpo", **settings)
    for name in COMMANDS:
        parts += _help_of(load_command(name), name, context)
    return "\n".join(parts)


def algorithms_page() -> str:
    """The page of every variant and recipe."""
    parts: dict[str, Callable[[], str]] = {
        "aggregation": _aggregations,
        "shared_options": _shared_options,
        "recipes": _recipes,
        **{
            kind: lambda kind=kind: "\n".join(_variant(kind, name) for name in registry.names(kind))
            for kind in registry.BUILT_IN
        },
    }
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]]().rstrip("\n"), ALGORITHMS.read_text(encoding="utf-8"))


def metrics_page() -> str:
    """The page of every logged metric."""
    parts = [METRICS_INTRODUCTION]
    for section, common in [*SECTIONS.items(), EVALUATION_SECTION]:
        listed = [metric for metric in (*CATALOGUE, *EVALUATIONS) if metric.section == section]
        heading: tuple[str, ...] = ("metric", "formula", "what is healthy")
        rows: Iterable[tuple[str, ...]] = ((f"`{each.name}`", each.formula, each.healthy) for each in listed)
        if not any(each.healthy for each in listed):
            heading, rows = heading[:2], (row[:2] for row in rows)
        parts.append(f"## {section}\n\n{_filled(common)}\n\n{table(heading, rows)}")
    parts.append(_other_names())
    return "\n".join(parts)


def warnings_page() -> str:
    """The page of the warnings of a run."""
    rows = (
        (
            f"[`{each.name}`](../how-to/troubleshooting.md#{each.name})",
            each.condition.replace("{}", f"{each.threshold:g}"),
            {"start": "at the start", "evaluation": "after an evaluation"}.get(each.moment, str(each.steps)),
            each.source,
        )
        for each in DIAGNOSES
    )
    return WARNINGS_INTRODUCTION + "\n" + table(("warning", "when", "logged steps in a row", "why there"), rows)


def _other_names() -> str:
    """What the reference systems call the metrics, and which names of theirs nothing here has."""
    kept = ((f"`{each.alias}`", each.system, f"`{each.name}`", each.note) for each in METRIC_ALIASES)
    not_kept = ((f"`{name}`", why) for name, why in NOT_KEPT.items())
    return (
        f"## Other names\n\n{_filled(OTHER_NAMES)}\n\n{table(('theirs', 'of', 'ours', 'difference'), kept)}\n"
        f"Names that nothing here has:\n\n{table(('theirs', 'why'), not_kept)}"
    )


def profiles_page() -> str:
    """The page of the GPU profiles and the presets."""
    matched = table(
        ("profile", "backend", "compute capability", "memory", "precision", "for"),
        (
            (
                f"`{profile.name}`", profile.backend, ", ".join(profile.capabilities) or "any", memory_range(profile),
                profile.precision, profile.description,
            )
            for profile in GPU_PROFILES.values()
        ),
    )  # fmt: skip
    sized = "".join(
        f"### `{profile.name}`, counted with {profile.memory_gib:g} GiB\n\n{_sized(profile.name)}\n"
        for profile in GPU_PROFILES.values()
        if profile.memory_gib
    )
    sizes = ("samples", "epochs", "learning_rate", "batch", "prompts", "generations")
    presets = table(
        ("preset", "rows", "epochs", "rate", "completions a pass", "prompts a step", "generations", "also", ""),
        (
            (
                f"`{each.name}`", *(format_value(getattr(each, size)) for size in sizes),
                ", ".join(f"`{key}={format_value(value)}`" for key, value in each.more.items()),
                f"{each.summary}. {each.note}".strip(),
            )
            for each in PRESETS.values()
        ),
    )  # fmt: skip
    parts = {"matched": matched, "sized": sized, "presets": presets, "source": PRESET_SOURCE}
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]].rstrip("\n"), PROFILES.read_text(encoding="utf-8"))


def _sized(profile: str) -> str:
    """What a profile sets by size of the model, for a full fine-tune and for LoRA."""
    rows = []
    for model in EXAMPLE_MODELS:
        for trained, given in (("all weights", {}), ("LoRA", {"lora.enabled": True})):
            values = settings_for(profile, model, **given)
            if isinstance(values, str):
                cells = (values.partition(":")[0].removeprefix(f"model {model} "), "", "", "")
            else:
                keys_shown = ("trainer.micro_batch_tokens", "trainer.max_completion_length", "eval.batch_size")
                tokens, length, batch = (format_value(values[key]) for key in keys_shown)
                cells = (tokens, "yes" if values["trainer.gradient_checkpointing"] else "no", length, batch)
            rows.append((model.rpartition("/")[2], trained, *cells))
    return table(
        ("model", "trained", "`micro_batch_tokens`", "checkpointing", "`max_completion_length`", "`eval.batch_size`"),
        rows,
    )


def house_picture() -> str:
    """The packages and the rooms of grpo_core and grpo_sdk, layer above layer, as `.importlinter` states them."""
    contracts = configparser.ConfigParser()
    contracts.read(CONTRACTS, encoding="utf-8")
    stated = [contracts[f"importlinter:contract:{name}"]["layers"].split("\n") for name in ("layers", "sdk")]
    core, sdk = ([re.split(r" [|:] ", line) for line in lines if line] for lines in stated)
    light = set(re.findall(r"grpo_core\.(\w+)", contracts["importlinter:contract:light"]["source_modules"]))
    plugins = contracts["importlinter:contract:licence"]["modules"].split()
    rows = [plugins, *core, *sdk]
    shapes: list[str] = []
    for row, rooms in enumerate(rows):
        is_sdk = row > len(core)
        top = PICTURE_MARGIN * (1 + (row > 0) + is_sdk) + row * PICTURE_ROW
        width = (PICTURE_WIDTH - PICTURE_MARGIN * (len(rooms) + 1)) / len(rooms)
        for column, room in enumerate(rooms):
            left = PICTURE_MARGIN + column * (width + PICTURE_MARGIN)
            kind = "plugin" if row == 0 else "light" if is_sdk or room in light else "room"
            shapes.append(
                f'<rect class="{kind}" x="{left:.0f}" y="{top}" width="{width:.0f}" height="{PICTURE_ROW - 8}" rx="4"/>'
                f'<text x="{left + width / 2:.0f}" y="{top + 19}">{escape(room)}</text>'
            )
    height = 4 * PICTURE_MARGIN + len(rows) * PICTURE_ROW
    key = "Dashed: plugins, which import grpo_sdk; below grpo_core, then grpo_sdk. Filled: free of torch."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PICTURE_WIDTH} {height + 24}" role="img">\n'
        f"<title>The packages and their layers</title>\n<style>{PICTURE_STYLE}</style>\n"
        + "\n".join(shapes)
        + f'\n<text x="{PICTURE_WIDTH / 2:.0f}" y="{height + 8}" class="key">{escape(key)}</text>\n</svg>\n'
    )


def pages() -> Mapping[Path, str]:
    """Every generated page by its path."""
    return {
        REFERENCE / "config.md": config_page(),
        REFERENCE / "cli.md": cli_page(),
        REFERENCE / "algorithms.md": algorithms_page(),
        REFERENCE / "metrics.md": metrics_page(),
        REFERENCE / "profiles.md": profiles_page(),
        REFERENCE / "rewards.md": rewards_page(),
        REFERENCE / "trainers.md": trainers_page(),
        REFERENCE / "hooks.md": hooks_page(),
        **api_pages(REFERENCE / "python"),
        REFERENCE / "warnings.md": warnings_page(),
        REFERENCE / "reasoning-gym.md": findings_page(),
        REFERENCE.parent / "explanation" / "house.svg": house_picture(),
        REFERENCE.parent / "explanation" / "kl-estimators.md": kl_page(),
        REFERENCE.parent / "explanation" / "kl-estimators.svg": kl_picture(),
    }


REWARD_MODULES = {
    "grpo_sdk.rewards": "building blocks, for the rewards of any task",
    "grpo_tasks_math.rewards": "answers of mathematics",
    "grpo_tasks_code.rewards": "programs, run in the sandbox",
    "grpo_tasks_chess.rewards": "moves, evaluations and outcomes of chess; GPL-3.0-or-later",
    "grpo_tasks_games.rewards": "moves of tic-tac-toe, connect four and nim",
}


def rewards_page() -> str:
    """Every reward function that other code can import, with its signature and example."""
    parts = [
        "# Rewards to import\n\n"
        "Plain functions of a completion and its gold, `(completion, gold) -> float`: any trainer can call them. None\n"
        "imports torch, and no completion raises. For hostile completions, still use a\n"
        "[`Scorer`](../how-to/another-trainer.md#any-other-trainer): it bounds time and memory.\n\n"
        "<!-- Written by docs/generate.py from the docstrings: change them there. -->\n"
    ]
    for name, what in REWARD_MODULES.items():
        module = importlib.import_module(name)
        functions = {
            each: getattr(module, each)
            for each in module.__all__
            if inspect.isfunction(getattr(module, each)) and getattr(module, each).__annotations__["return"] == "float"
        }
        parts.append(f"## `{name}`: {what}\n")
        parts += [_reward(each, function) for each, function in functions.items() if function.__module__ == name]
    return "\n".join(parts)


def _reward(name: str, function: Callable[..., float]) -> str:
    text, _, example = (inspect.getdoc(function) or "").partition("Examples:\n")
    prose, *sections = re.split(r"\n\n(?=(?:Args|Returns|Raises):)", text.strip())
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))  # annotations are text
    details = [
        f"- {'the value: ' if section.startswith('Returns:') else ''}{line.strip()}"
        for section in sections
        for line in re.sub(r"\n {8,}", " ", section).split("\n")[1:]
        if line.strip()
    ]
    listed = "\n".join(re.sub(r"^- (\w+): ", r"- `\1`: ", line) for line in details)
    return "\n".join(
        [
            f"### `{name}`\n",
            f"```text\n{name}{signature}\n```\n",
            f"{_filled(prose)}\n",
            *([f"{listed}\n"] if listed else []),
            f"```python\n{textwrap.dedent(example).strip()}\n```\n",
        ]
    )


def main(arguments: Iterable[str]) -> int:
    """Write the pages, or compare them; 1 if one is not current."""
    found = pages().items()
    stale = {path: text for path, text in found if not path.is_file() or path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        if "--check" in arguments:
            print(f"{path.relative_to(REFERENCE.parent.parent)} is not current: run python docs/generate.py")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(REFERENCE.parent.parent)}")
    return int(bool(stale) and "--check" in arguments)


def _help_of(command: click.Command, name: str, parent: click.Context) -> list[str]:
    context = click.Context(command, parent=parent, info_name=name)
    found = [f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            subcommand = command.get_command(context, inner)
            assert subcommand is not None
            found += _help_of(subcommand, inner, context)
    return found


def _aggregations() -> str:
    def used_by(how: Aggregation) -> str:
        losses = [name for name in registry.names("loss") if registry.get("loss", name).aggregation == how]
        return ", ".join(f"`{name}`" for name in losses)

    rows = [
        (f"`{how}`", AGGREGATIONS[how][0], used_by(how), AGGREGATIONS[how][1]) for how in typing.get_args(Aggregation)
    ]
    return "".join(line(row) for row in rows)


def _shared_options() -> str:
    rows = ((f"`{name}`", meaning + _setting_of("loss", "", name)) for name, meaning in SHARED_OPTIONS.items())
    return table(("Option", "Meaning"), rows)


def _variant(kind: str, name: str) -> str:
    """One variant: what it is, its formula and source, what it needs, its options."""
    variant = registry.get(kind, name)
    documentation = variant.summary or inspect.getdoc(registry.resolve(kind, name)) or ""
    prose = documentation.split("\n\nArgs:")[0].split("\n\nRaises:")[0]
    parts = [f"### `{name}`", SUMMARIES.get((kind, name)) or _filled(prose)]
    if variant.formula:
        parts.append(f"```text\n{variant.formula}\n```")
    if facts := [*([f"Source: {variant.source}."] if variant.source else []), *_needs(kind, name)]:
        parts.append(_filled(" ".join(facts)))
    if lines := _options(kind, name, _documented_arguments(documentation)):
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _options(kind: str, name: str, documented: Mapping[str, str]) -> list[str]:
    """A line for each option; those that losses share have one together, since their meaning is said before."""
    options = registry.arguments(kind, name).values()
    shared = [option for option in options if kind == "loss" and option.name in SHARED_OPTIONS]
    lines = [f"- {', '.join(f'`{option.name}` {format_value(option.default)}' for option in shared)}"] if shared else []
    for option in options:
        if option not in shared:
            # An option without a meaning stops the page: KeyError.
            meaning = (documented.get(option.name) or OWN_OPTIONS[name, option.name]).rstrip(".")
            facts = f"{_type(option.annotation)}, default {format_value(option.default)}"
            text = f"- `{option.name}` ({facts}): {meaning}{_setting_of(kind, name, option.name)}"
            lines.append(_filled(text, indent="  "))
    return lines


def _setting_of(kind: str, name: str, option: str) -> str:
    setting = SETTINGS.get((kind, option)) or SETTINGS.get((name, option))
    if setting is None:
        return ""
    default = keys()[setting].default
    by_default = "null, which goes by the loss" if default is None else format_value(default)
    return f"; in a run it is `{setting}`, by default {by_default}"


def _needs(kind: str, name: str) -> list[str]:
    if kind == "loss":
        loss = registry.get(kind, name)
        facts = [f"Aggregation: `{loss.aggregation}`."]
        return facts if loss.zero_without_advantage else [*facts, "Completions of advantage 0 are trained on too."]
    if kind != "advantage":
        return []
    baseline = registry.get(kind, name)
    facts = ["Needs a group." if baseline.needs_group else "Works with one completion per prompt."]
    if baseline.per_token:
        facts.append("One advantage per token.")
    if baseline.scales_itself:
        facts.append("Normalises by itself: `trainer.scale_rewards` is `none`.")
    if not baseline.takes_penalties:
        facts.append(
            f"It {baseline.penalties_why}: `trainer.kl_placement=reward` and "
            "`trainer.soft_overlong_buffer` are refused."
        )
    given = [INPUTS[each] for each in registry.parameters(kind, name) if each not in registry.arguments(kind, name)]
    return [*facts, f"Uses {', '.join(given)}."] if given else facts


def _recipes() -> str:
    """What defines each recipe; the how-to guide has all of their options."""
    defining = ("loss_type", "aggregation", "baseline", "scale_rewards")
    rows = (
        (
            f"`{recipe.name}`",
            *(f"`{format_value(recipe.options[f'trainer.{key}'])}`" for key in defining),
            recipe.summary,
            recipe.source,
        )
        for recipe in RECIPES.values()
    )
    return table(("recipe", "loss", "aggregation", "baseline", "scaled by", "", "source"), rows)


def _documented_arguments(documentation: str) -> dict[str, str]:
    """Name -> meaning, of the section `Args:` of a docstring."""
    _, _, section = documentation.partition("\nArgs:\n")
    section = section.split("\n\n")[0]
    return {
        name: " ".join(text.split())
        for name, text in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    }


def _filled(text: str, indent: str = "") -> str:
    """Its paragraphs in lines of the width that hand-written pages have."""

    def fill(paragraph: str) -> str:
        return textwrap.fill(
            paragraph, TEXT_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )

    return "\n\n".join(map(fill, text.split("\n\n")))


def _type(annotation: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}
    said = [
        " or ".join(map(str, typing.get_args(each))) if typing.get_origin(each) is Literal else words[each]
        for each in members(annotation)
    ]
    return " or ".join(said)


def _row(key: Key) -> tuple[str, ...]:
    allowed = key.allowed + (f"; {key.why}" if key.why else "")
    return (f"`{key.name}`", f"`{format_value(key.default)}`", allowed, key.description)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
