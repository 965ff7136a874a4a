import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace

from report import answer, batch, report
from stubs import stub

stub("ray", "sglang", "vllm", "megatron", "swanlab", "wandb", "trackio", "tensorboardX")

from areal.api.cli_args import GenerationHyperparameters, GRPOConfig, load_expr_config  # noqa: E402
from areal.infra.remote_inf_engine import GroupedRolloutWorkflow  # noqa: E402
from areal.utils import stats_tracker  # noqa: E402
from areal.utils.dynamic_import import import_from_string  # noqa: E402

from grpo_sdk.interop.export import Cluster, export_files, target_of  # noqa: E402


class Tokenizer:
    """One token per character."""

    pad_token_id = eos_token_id = 0

    def apply_chat_template(self, messages, **options):
        return {"input_ids": [ord(character) for message in messages for character in message["content"]]}

    def decode(self, ids):
        return "".join(map(chr, ids))


class Engine:
    """Answers from a list."""

    def __init__(self, texts):
        self.answers = [[ord(character) for character in text] for text in texts]

    async def agenerate(self, request):
        ids = self.answers.pop(0)
        return SimpleNamespace(
            input_tokens=request.input_ids, output_tokens=ids, input_len=len(request.input_ids), output_len=len(ids),
            output_logprobs=[0.0] * len(ids), output_versions=[0] * len(ids),
        )  # fmt: skip


workflow = import_from_string("grpo_sdk.interop.areal.TaskWorkflow")(
    gconfig=GenerationHyperparameters(), tokenizer=Tokenizer()
)
group = GroupedRolloutWorkflow(workflow, 2, logging.getLogger("group"))


async def run(sample):
    """A group of two, both with the sample's completion."""
    prompt = sample["prompt"]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    data = {"messages": messages, "task": sample["task"], "row": sample["row"]}
    return await group.arun_episode(Engine([sample["completion"]] * 2), data)


for name, content in export_files(
    target_of("areal"), "math.arithmetic?size=4", "m", Cluster(2, 4), test_size=2
).items():
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
config, _ = load_expr_config(["--config", "config.yaml"], GRPOConfig)
assert config.cluster.n_nodes == 2 and config.gconfig.stop == ["\n"] and config.actor.path == "m"

answers = []
for sample in batch():
    result = asyncio.run(run(sample))
    stats = stats_tracker.export_all()
    if result is None:
        answers.append(answer(None, unscored="the episode is rejected, its group goes on without it"))
        continue
    rewards = result["rewards"].tolist()
    assert rewards[0] == rewards[1]
    means = {name.rpartition("/")[2]: value for name, value in stats.items() if not name.endswith("__count")}
    answers.append(answer(rewards[0], {name: value for name, value in means.items() if name != "reward"}))
report("areal", "GroupedRolloutWorkflow.arun_episode, RLVRWorkflow._collect_samples", answers)
