"""Forward passes over a generated batch, in micro-batches that fit the memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from grpo_core.algorithms.causal_lm import evaluating
from grpo_core.algorithms.corrections import high_entropy_mask
from grpo_core.algorithms.kl import k3
from grpo_core.algorithms.packing import Pack, pair_cost
from grpo_core.policy.pass_budget import TrainingBudget
from grpo_core.policy.policy import Policy
from grpo_core.policy.ranks import Ranks
from grpo_core.training.algorithm import Algorithm
from grpo_core.training.batch import MicroBatch, Snapshot, TokenBatch, micro_batches

_Batch = TypeVar("_Batch", bound=TokenBatch)


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
        self.budget = TrainingBudget(policy, algorithm.config, ranks, warn)
        self._algorithm, self._pair_cost = algorithm, pair_cost(policy.model)

    def each(
        self, batch: _Batch, work: Callable[[MicroBatch, _Batch], None], undo: Callable[[], None] = lambda: None
    ) -> None:
        """Run every micro-batch; where memory runs out, all of them again in smaller ones.

        Args:
            batch: Rows of this rank.
            work: Runs a micro-batch, of which it gets the rows on the device.
            undo: Removes what unfinished work left behind.
        """

        def run() -> None:
            with self.policy.in_step():
                for micro in micro_batches(batch, self.budget.limits, self._pair_cost):
                    self.budget.running = micro.size
                    work(micro, batch.rows(micro.rows).to(self.policy.device))

        self.budget.until_it_fits(run, undo)

    def own_rows(self, batch: TokenBatch) -> Tensor:
        """Indices of this rank's rows: whole prompts, in order."""
        prompts = batch.groups.unique_consecutive()
        share = self.ranks.share(len(prompts))
        return torch.isin(batch.groups, prompts[share.start : share.stop]).nonzero()[:, 0]

    def snapshot(self, batch: TokenBatch) -> Snapshot:
        """What the update compares with, each where the configuration needs it; strictly on-policy nothing is."""
        config, placement = self.config, self._algorithm.kl_placement
        is_on_policy = config.num_iterations == 1 and config.steps_per_generation == 1  # so that the ratio is 1
        restricts = config.top_entropy_quantile < 1
        found: Mapping[str, Tensor] = {}
        if not is_on_policy or placement.before_update or restricts or config.value_head:
            found = self._measured(_lengthened(batch) if config.gae_bootstrap else batch, with_entropy=restricts)
        last_values = _last_values(batch, found["values"]) if config.gae_bootstrap else None
        found = {name: values[:, : batch.mask.shape[1]] for name, values in found.items()}
        return Snapshot(
            old_logprobs=None if is_on_policy else found["logp"],
            ref_logprobs=self._reference_logprobs(batch) if placement.in_loss and not placement.is_full else None,
            token_kl=found.get("kl"),
            token_k3=found.get("k3"),
            old_values=found.get("values"),
            last_values=last_values,
            policy_mask=(
                high_entropy_mask(found["entropy"], batch.mask, quantile=config.top_entropy_quantile)
                if restricts
                else None
            ),
        )

    def _measured(self, batch: TokenBatch, *, with_entropy: bool) -> dict[str, Tensor]:
        """[B, T] of the policy as it sampled: logp, entropy, values and the KL against the reference."""
        placement = self._algorithm.kl_placement
        is_full = placement.before_update and placement.is_full
        names = ["logp"]
        names += ["entropy"] if with_entropy else []
        names += ["values"] if self.policy.value_head is not None else []
        names += ["kl", "k3"] if placement.before_update else []

        def measure(micro: MicroBatch, rows: TokenBatch) -> dict[str, Tensor]:
            found = self.outputs(rows, micro.packs, with_entropy=with_entropy, with_full_kl=is_full)
            if is_full:
                found["k3"] = found["kl"]
            elif placement.before_update:
                logps = found["logp"], self._reference_logp(rows, micro.packs)
                found["kl"], found["k3"] = self._algorithm.kl(*logps), k3(*logps)
            return found

        with torch.no_grad(), self.policy.precision():  # around all passes: weights are cast once
            return self._of_all(batch, names, measure)

    def outputs(
        self, rows: TokenBatch, packs: Sequence[Pack], *, with_entropy: bool, with_full_kl: bool
    ) -> dict[str, Tensor]:
        """What a pass says of rows on the device, [M, T] by name: logp; entropy and full KL if asked for; values.

        Wide from here on: [B, T] numbers are few, and a sum of thousands must not lose the small ones.
        """
        policy, temperature = self.policy, self.config.temperature
        with policy.precision():
            ref_states = None
            if with_full_kl:
                # Without dropout, which is on in an update where the reference is the policy's own module.
                with policy.reference() as reference, evaluating(reference.model):
                    ref_states = reference.states(*rows.inputs, packs)
            states = policy.states(*rows.inputs, packs)
            logp, entropy = states.logprobs(temperature=temperature, with_entropy=with_entropy)
            found = {"logp": logp}
            if entropy is not None:
                found["entropy"] = entropy
            if ref_states is not None:
                found["kl"] = states.full_kl(ref_states, temperature=temperature, **self._algorithm.kl.arguments)
            if policy.value_head is not None:
                found["values"] = states.read(policy.value_head)
        return {name: values.to(policy.wide) for name, values in found.items()}

    def _reference_logp(self, rows: TokenBatch, packs: Sequence[Pack]) -> Tensor:
        """[M, T] under the reference."""
        with self.policy.reference() as reference, reference.precision():
            logp, _ = reference.states(*rows.inputs, packs).logprobs(temperature=self.config.temperature)
        return logp.to(self.policy.wide)

    def _reference_logprobs(self, batch: TokenBatch) -> Tensor:
        """[B, T] under the reference."""

        def measure(micro: MicroBatch, rows: TokenBatch) -> dict[str, Tensor]:
            return {"logp": self._reference_logp(rows, micro.packs)}

        with self.policy.precision():  # as above
            return self._of_all(batch, ["logp"], measure)["logp"]

    def _of_all(
        self,
        batch: TokenBatch,
        names: Sequence[str],
        measure: Callable[[MicroBatch, TokenBatch], Mapping[str, Tensor]],
    ) -> dict[str, Tensor]:
        """What is measured in the passes of all ranks, by name: [B, T] on the CPU.

        Args:
            batch: The rows of all ranks.
            names: What is measured.
            measure: Returns it of a micro-batch: [M, T].
        """
        own, wide = self.own_rows(batch), self.policy.wide
        results = {name: torch.zeros(batch.mask.shape, dtype=wide) for name in names}

        def keep(micro: MicroBatch, rows: TokenBatch) -> None:
            for name, values in measure(micro, rows).items():
                results[name][own[micro.rows], : values.shape[1]] = values.to(wide).cpu()

        self.each(batch.rows(own), keep)
        return {name: self.ranks.sum(values) for name, values in results.items()}  # 0 in the rows of others


def _lengthened(batch: TokenBatch) -> TokenBatch:
    """The batch with one token more, which is never read, on the rows that are cut: a value for the state before it."""
    return replace(
        batch,
        input_ids=torch.nn.functional.pad(batch.input_ids, (0, 1)),
        completion_lens=batch.completion_lens + batch.is_cut,
        mask=torch.nn.functional.pad(batch.mask, (0, 1)),
    )


def _last_values(batch: TokenBatch, values: Tensor) -> Tensor:
    """[B] values after the last token of rows that are cut, of those of `_lengthened`; 0 elsewhere."""
    return values.gather(1, batch.completion_lens[:, None])[:, 0].where(batch.is_cut, 0.0)
