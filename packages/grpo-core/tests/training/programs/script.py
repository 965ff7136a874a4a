from grpo_core import train
from grpo_sdk import Row, Task, reward


def load(config) -> list[Row]:
    start = 0 if config.split == "train" else 50
    return [Row(id=str(n), gold=str(n + 1)) for n in range(start, start + 50)]


right = reward()(lambda text, row: float(text.strip() == row.gold))
add = Task("add", load, lambda row: f"{row.id} + 1 =", lambda text: text, [right])
result = train(add, model="tiny", max_steps=2, prompts_per_step=2, eval={"size": 4})
print(result, result.evaluate(size=4), sep="\n")
