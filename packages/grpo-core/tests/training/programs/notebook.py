# %%
import grpo_core
from grpo_core import Row, Task, reward


class Sum(Row):
    prompt: str


def load(config) -> list[Sum]:
    numbers = [n for n in range(90) if (n % 3 > 0) == (config.split == "train")]
    return [Sum(id=str(n), prompt=f"{n} + 1 =", gold=str(n + 1)) for n in numbers]


@reward()
def right(answer, row):
    while answer == "hang":
        pass
    return float(answer == row.gold)


add = Task("add", load, lambda row: row.prompt, lambda text: text.strip(), [right], timeout_s=1.0)
# %%
row = grpo_core.load_task(add).rows()[0]
[grpo_core.score(add, text, row).value for text in (row.gold, "0", "hang")]
# %%
result = grpo_core.train(add, model="tiny", max_steps=2, prompts_per_step=2, eval={"size": 4})
result  # noqa: B018
# %%
result.evaluate(size=4)
