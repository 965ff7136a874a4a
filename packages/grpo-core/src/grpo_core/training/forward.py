"""Forward passes over a generated batch, in micro-batches: those without gradient, once per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from grpo_core.algorithms.corrections import high_entropy_mask
from grpo_core.algorithms.kl import k3
from grpo_core.algorithms.packing import pair_cost
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import MicroBatch, TrainBatch, micro_batches
from grpo_core.training.pass_budget import PassBudget
from grpo_core.training.pass_limits import PassSize


class ForwardPasses:
    """Runs a policy and its reference over batches.

    Args:
        policy: The model.
        algorithm: The KL estimator and the settings of the passes.
        ranks: The processes; each runs its own rows.
        warn: Receives one warning if memory runs out.

    Attributes:
        budget: How large a pass may be.
    """

    def __init__(
        self, policy: Policy, algorithm: Algorithm, ranks: Ranks, warn: Callable[[str], None] = lambda message: None
    ) -> None:
        self.policy, self.config, self.ranks = policy, algorithm.config, ranks
        self.budget = PassBudget(policy, algorithm.config, ranks, warn)
        self._pair_cost = pair_cost(policy.model)
        self._kl = algorithm.kl

    @property
    def on_policy(self) -> bool:
        """Whether each batch is used for one update, so that the ratio is 1 and the old log-prob pass is skipped."""
        return self.config.num_iterations == 1 and self.config.steps_per_generation == 1

    @property
    def kl_in_reward(self) -> bool:
        """Whether the KL penalty is taken off the reward, and not part of the loss."""
        return self.config.beta > 0 and self.config.kl_placement == "reward"

    @property
    def kl_in_loss(self) -> bool:
        """Whether the KL penalty is part of the loss."""
        return self.config.beta > 0 and self.config.kl_placement != "reward"

    def passes(self, batch: TrainBatch) -> Iterator[tuple[MicroBatch, TrainBatch]]:
        """Split a batch into forward passes that fit the limits: (micro-batch, its rows on the device)."""
        limits = self.budget.limits
        for micro in micro_batches(
            batch,
            pair_cost=self._pair_cost,
            max_rows=limits.rows,
            max_tokens=limits.tokens,
            prompts=limits.prompts,
        ):
            self.budget.running = _size(batch, micro)
            yield micro, batch.rows(micro.rows).to(self.policy.device)

    def own_rows(self, batch: TrainBatch) -> Tensor:
        """Indices of this rank's rows: whole prompts, in order."""
        prompts = batch.groups.unique_consecutive()
        share = self.ranks.share(len(prompts))
        return torch.isin(batch.groups, prompts[share.start : share.stop]).nonzero()[:, 0]

    def freeze(self, batch: TrainBatch) -> TrainBatch:
        """Fill in what the update compares with: old log-probs, values, the reference, the tokens that count.

        Each is computed only where the configuration needs it; strictly on-policy nothing is.
        """
        config = self.config
        measures_kl = self.kl_in_reward or (config.kl_metric and not self.kl_in_loss)
        restricts = config.top_entropy_quantile < 1
        if not self.on_policy or measures_kl or restricts or config.value_head:
            longer = _lengthened(batch) if config.gae_bootstrap else batch
            frozen = self._run(longer, entropy=restricts, kl=measures_kl)
            last_values = _last_values(batch, frozen["values"]) if config.gae_bootstrap else None
            frozen = {name: values[:, : batch.mask.shape[1]] for name, values in frozen.items()}
            batch = replace(
                batch,
                last_values=last_values,
                old_logprobs=None if self.on_policy else frozen["logp"],
                old_values=frozen.get("values"),
                token_kl=frozen.get("kl"),
                token_k3=frozen.get("k3"),
                policy_mask=(
                    high_entropy_mask(frozen["entropy"], batch.mask, quantile=config.top_entropy_quantile)
                    if restricts
                    else None
                ),
            )
        if self.kl_in_loss and config.kl != "full":
            own = self.budget.until_it_fits(lambda: self._own_reference_logprobs(batch))
            return replace(batch, ref_logprobs=self.ranks.sum(own))
        return batch

    def _run(self, batch: TrainBatch, *, entropy: bool, kl: bool) -> dict[str, Tensor]:
        """[B, T] of the policy as it sampled: logp, entropy, values and the KL against the reference."""
        results = self.budget.until_it_fits(lambda: self._run_own(batch, entropy=entropy, kl=kl))
        return {name: self.ranks.sum(values) for name, values in results.items()}  # 0 in the rows of others

    def _run_own(self, batch: TrainBatch, *, entropy: bool, kl: bool) -> dict[str, Tensor]:
        """The same with 0 in the rows of other ranks."""
        results: dict[str, Tensor] = {}
        policy, temperature = self.policy, self.config.temperature

        def keep(name: str, micro: MicroBatch, values: Tensor) -> None:
            result = results.setdefault(name, torch.zeros(batch.mask.shape, dtype=policy.wide))
            result[own[micro.rows], : values.shape[1]] = values.to(policy.wide).cpu()

        own = self.own_rows(batch)
        with policy.in_step(), torch.no_grad(), policy.precision():
            for micro, rows in self.passes(batch.rows(own)):
                lens = (rows.input_ids, rows.prompt_lens, rows.completion_lens)
                states = policy.states(*lens, micro.packs)
                logp, entropies = states.logprobs(temperature=temperature, with_entropy=entropy)
                keep("logp", micro, logp)
                if entropies is not None:
                    keep("entropy", micro, entropies)
                if policy.value_head is not None:
                    keep("values", micro, states.read(policy.value_head))
                if kl:
                    with policy.reference() as reference:
                        ref_states = reference.states(*lens, micro.packs)
                        if self.config.kl == "full":
                            options = self._kl.arguments
                            estimate = driving = states.full_kl(ref_states, temperature=temperature, **options)
                        else:
                            ref_logp, _ = ref_states.logprobs(temperature=temperature)
                            wide, ref_wide = logp.to(policy.wide), ref_logp.to(policy.wide)
                            estimate, driving = self._kl(wide, ref_wide), k3(wide, ref_wide)
                    keep("kl", micro, estimate)
                    keep("k3", micro, driving)
        return results

    def _own_reference_logprobs(self, batch: TrainBatch) -> Tensor:
        logprobs = torch.zeros(batch.mask.shape, dtype=self.policy.wide)
        own = self.own_rows(batch)
        with self.policy.in_step(), self.policy.reference() as reference, reference.precision():
            for micro, rows in self.passes(batch.rows(own)):
                states = reference.states(rows.input_ids, rows.prompt_lens, rows.completion_lens, micro.packs)
                logp, _ = states.logprobs(temperature=self.config.temperature)
                logprobs[own[micro.rows], : logp.shape[1]] = logp.to(self.policy.wide).cpu()
        return logprobs


def _lengthened(batch: TrainBatch) -> TrainBatch:
    """The batch with one token more, which is never read, on the rows that are cut: a value for the state before it."""
    assert batch.is_cut is not None
    return replace(
        batch,
        input_ids=torch.nn.functional.pad(batch.input_ids, (0, 1)),
        completion_lens=batch.completion_lens + batch.is_cut,
        mask=torch.nn.functional.pad(batch.mask, (0, 1)),
    )


def _last_values(batch: TrainBatch, values: Tensor) -> Tensor:
    """[B] values after the last token of rows that are cut, of those of `_lengthened`; 0 elsewhere."""
    assert batch.is_cut is not None
    return values.gather(1, batch.completion_lens[:, None])[:, 0].where(batch.is_cut, 0.0)


def _size(batch: TrainBatch, micro: MicroBatch) -> PassSize:
    """Size of a forward pass over some rows of a batch."""
    prompts, completions = batch.prompt_lens[micro.rows].tolist(), batch.completion_lens[micro.rows].tolist()
    longest = max(prompts[pack[0]] + sum(completions[row] for row in pack) for pack in micro.packs)
    groups = len(batch.groups[micro.rows].unique())
    return PassSize(len(micro.rows), len(micro.packs) * longest, groups)
