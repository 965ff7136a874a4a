"""Dr. GRPO in one file: what `grpo_core.training` does, with nothing but torch and the model.

    python examples/minimal_grpo.py

Rewards, rows and the model come from the packages; the algorithm is all here. `tests/test_minimal_grpo.py` holds this
loop and the trainer to the same numbers.
"""

from __future__ import annotations

import torch
from torch.nn.functional import log_softmax

PROMPTS_PER_STEP, GROUP, MAX_TOKENS, LEARNING_RATE = 8, 8, 12, 1e-4


def token_logprobs(model, ids, mask, n_prompt):
    """Log-probabilities [B, T] of the tokens after the prompt."""
    logits = model(ids).logits[:, n_prompt - 1 : -1]
    picked = log_softmax(logits.double(), dim=-1).gather(-1, ids[:, n_prompt:, None])[..., 0]
    return picked.where(mask, 0.0)  # [B, T]


def dr_grpo_loss(logp, old_logp, advantages, mask, *, n_rows, max_tokens, epsilon=0.2):
    """Σ −min(ρA, clip(ρ)A) / (rows · max_tokens): a constant denominator, no division by a standard deviation."""
    ratio = (logp - old_logp).exp()
    objective = torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - epsilon, 1 + epsilon) * advantages[:, None])
    return -objective.where(mask, 0.0).sum() / (n_rows * max_tokens)


@torch.no_grad()
def sample(model, prompt, eos, generator):
    """`GROUP` completions of one prompt: ids [G, P + T] and the mask [G, T] of tokens up to the end."""
    ids, done, masks = prompt.repeat(GROUP, 1), torch.zeros(GROUP, dtype=torch.bool), []
    for _ in range(MAX_TOKENS):
        probabilities = model(ids).logits[:, -1].softmax(-1)
        token = torch.multinomial(probabilities, 1, generator=generator)[:, 0].masked_fill(done, eos)
        masks.append(~done)
        ids, done = torch.cat([ids, token[:, None]], dim=1), done | (token == eos)
    return ids, torch.stack(masks, dim=1)


def train_step(model, optimizer, tokenizer, task, rows, generator):
    """One step over `rows`: sample, score, compare within groups, update. Returns the mean reward."""
    eos, groups, rewards = tokenizer.eos_token_id, [], []
    for row in rows:
        prompt = torch.tensor([tokenizer(task.prompt(row))["input_ids"]])
        ids, mask = sample(model, prompt, eos, generator)
        texts = tokenizer.batch_decode(ids[:, prompt.shape[1] :], skip_special_tokens=True)
        rewards.append(torch.tensor([task.score(text, row).value for text in texts], dtype=torch.float64))
        groups.append((ids, mask, prompt.shape[1]))
    for (ids, mask, n_prompt), reward in zip(groups, rewards, strict=True):
        advantages = reward - reward.mean()
        logp = token_logprobs(model, ids, mask, n_prompt)
        loss = dr_grpo_loss(logp, logp.detach(), advantages, mask, n_rows=len(rows) * GROUP, max_tokens=MAX_TOKENS)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return float(torch.cat(rewards).mean())


def main(steps: int = 20) -> None:
    """Train the embedded model on two-digit sums."""
    from grpo_core import load_task
    from grpo_core.policy.load import load_policy

    policy = load_policy("tiny", device="cpu")
    task = load_task("math.arithmetic")
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    rows, generator = task.rows(), torch.Generator().manual_seed(0)
    for step in range(steps):
        batch = rows[step * PROMPTS_PER_STEP : (step + 1) * PROMPTS_PER_STEP]
        reward = train_step(policy.model, optimizer, policy.tokenizer, task, batch, generator)
        print(f"step {step + 1} reward {reward:.3f}")


if __name__ == "__main__":
    main()
