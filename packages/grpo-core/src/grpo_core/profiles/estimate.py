"""How much memory a run needs, computed from its sizes and the model's shape: nothing is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grpo_core.profiles.accelerator import GIB
from grpo_core.profiles.model_shape import ModelShape

NF4_BYTES = 0.5 + 1 / 16
"""Bytes of a weight in 4 bits, with its share of the block's scales."""

HALF, SINGLE, DOUBLE = 2, 4, 8
"""Bytes of a number in bfloat16 or float16, in float32 and in float64."""

CHUNK_ELEMENTS, CHUNK_ELEMENTS_GPU = 3 * 2**21, 2**27
"""Elements of logits that are held at once in training; a test compares them with `algorithms.logprobs`."""

SAMPLED_ELEMENTS = 2**25
"""Elements of logits that are held at once while sampling; a test compares it with `engines.native`."""

MAX_CACHED_TOKENS = 2**21
"""Tokens of keys and values at most, however large the memory: decoding has long stopped to get faster."""

HEAP_OVERHEAD = 1.15
"""What the C library's heap takes for activations, whose blocks it does not give back; measured on a CPU."""

LOGITS_COPIES = 3
"""Tensors of that size that are alive together: logits, their softmax and its gradient."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Sizes of a run that its memory depends on, for one process.

    Attributes:
        shape: The model.
        weight_bytes: Bytes of one weight.
        compute_bytes: Bytes of one number in matmuls: less than those of a weight under autocast.
        trained: Parameters that are trained.
        has_reference: Whether a frozen copy of the weights is held.
        prompt_tokens: Tokens of a prompt.
        completion_tokens: Longest completion.
        generations: Completions of a prompt.
        prompts: Prompts of a step.
        pass_tokens: Padded tokens of a forward pass of training.
        checkpointing: Whether activations are computed again in the backward pass.
        cached_tokens: Tokens of keys and values that sampling may hold at once.
        on_accelerator: Whether it runs on one.
        overlaps: Whether sampling needs memory while the model trains: for a copy of what is trained, or its server's.
        shards: Processes that share weights, gradients and moments.
        is_offloaded: Whether these wait in host memory, and the device has only what runs.
        server_share: Part of the model, of its keys and values that a server holds on the device to sample: 0 where the
            server is elsewhere, None where none samples.
    """

    shape: ModelShape
    weight_bytes: float
    compute_bytes: int
    trained: int
    has_reference: bool
    prompt_tokens: int
    completion_tokens: int
    generations: int
    prompts: int
    pass_tokens: int
    checkpointing: bool
    cached_tokens: int
    on_accelerator: bool
    overlaps: bool = False
    shards: int = 1
    is_offloaded: bool = False
    server_share: float | None = None

    @property
    def server_weights(self) -> float:
        """Bytes of the model in the server of the run's own."""
        return (self.server_share or 0.0) * self.shape.parameters * self.compute_bytes


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Peak memory of one process, in bytes.

    Attributes:
        weights: Weights, with the copies that autocast makes.
        reference: Frozen copy of the weights for the KL penalty.
        optimizer: AdamW's two moments.
        gradients: Gradients, held while a batch is trained on.
        activations: What a forward pass keeps for the backward pass, with its logits.
        sampling: Keys, values and logits while completions are sampled; where a server of the run's own samples, its
            weights, keys and values.
        overlaps: Whether sampling and training need theirs at the same time.
    """

    weights: float
    reference: float
    optimizer: float
    gradients: float
    activations: float
    sampling: float
    overlaps: bool = False

    @property
    def fixed(self) -> float:
        """What is there in every phase."""
        return self.weights + self.reference + self.optimizer

    @property
    def total(self) -> float:
        """The peak: where sampling and training alternate, the larger of the two counts."""
        training = self.gradients + self.activations
        return self.fixed + (training + self.sampling if self.overlaps else max(training, self.sampling))

    @property
    def parts(self) -> dict[str, float]:
        """What adds up to the total, by name, without what is 0."""
        named = {"weights": self.weights, "reference": self.reference, "optimizer": self.optimizer}
        samples_most = self.sampling > self.gradients + self.activations
        if samples_most or self.overlaps:
            named["sampling"] = self.sampling
        if not samples_most or self.overlaps:
            named |= {"gradients": self.gradients, "activations": self.activations}
        return {name: size for name, size in named.items() if size}

    def __str__(self) -> str:
        return ", ".join(f"{name} {gib(size)}" for name, size in self.parts.items())


def estimate(plan: MemoryPlan) -> MemoryEstimate:
    """The memory that a run needs at its peak, on the device that it runs on, without what imports take."""
    shape, trained = plan.shape, plan.trained * SINGLE / plan.shards
    weights, reference, gradients, optimizer = _weights(plan) / plan.shards, 0.0, trained, 2 * trained
    if plan.is_offloaded:  # embeddings and head, and two layers, one of them on its way
        # What is no linear layer of one MLP is the embeddings and the head, or the experts of a mixture.
        root = min(shape.parameters - shape.linear_parameters, 2 * shape.vocabulary * shape.hidden)
        running = root + 2 * (shape.parameters - root) / shape.layers
        is_whole = plan.trained >= shape.parameters
        weights, optimizer = running * plan.compute_bytes, 0.0
        gradients = (running if is_whole else plan.trained / shape.layers) * SINGLE
    else:
        reference = weights if plan.has_reference else 0.0
        if plan.compute_bytes < plan.weight_bytes:  # autocast keeps a copy of each matrix for the length of a pass
            weights += shape.parameters * plan.compute_bytes / plan.shards
        if plan.overlaps and plan.server_share is None:  # a copy that samples; a server has its own already
            weights += trained
    activations, sampling = _activations(plan), _sampling(plan)
    return MemoryEstimate(weights, reference, optimizer, gradients, activations, sampling, plan.overlaps)


def largest_pass(plan: MemoryPlan, memory: float, largest: int) -> tuple[int, bool] | None:
    """Tokens of a forward pass, a power of two, with which the plan fits, and whether activations are checkpointed.

    Checkpointing costs a third more time: it is chosen where without it less than one group of completions fits.

    Args:
        plan: Sizes of the run.
        memory: Bytes that it may need.
        largest: Tokens at most.

    Returns:
        (tokens, checkpointing); None where not even one completion fits.
    """
    row = plan.prompt_tokens + plan.completion_tokens
    group = plan.prompt_tokens + plan.generations * plan.completion_tokens
    for checkpointing, least in ((False, min(group, largest)), (True, row)):
        tokens = largest
        while tokens >= min(row, largest) / 2:
            if estimate(replace(plan, pass_tokens=tokens, checkpointing=checkpointing)).total <= memory:
                if tokens >= least / 2:
                    return tokens, checkpointing
                break
            tokens //= 2
    return None


def cached_tokens(shape: ModelShape, number_bytes: int, memory: float) -> int:
    """Tokens whose keys and values fit some bytes of memory, with so many bytes for a number."""
    return int(min(MAX_CACHED_TOKENS, memory / (shape.kv_values_per_token * number_bytes)))


def tokens_in_pass(plan: MemoryPlan) -> int:
    """Tokens of the largest forward pass: the limit, unless a step has fewer or one completion has more."""
    row = plan.prompt_tokens + plan.completion_tokens
    step = plan.prompts * (plan.prompt_tokens + plan.generations * (plan.completion_tokens - 1))
    return max(row, min(plan.pass_tokens, step))


def _weights(plan: MemoryPlan) -> float:
    """Bytes of the model; in 4 bits, of its linear layers alone."""
    shape = plan.shape
    quantized = shape.linear_parameters if plan.weight_bytes < 1 else 0
    return quantized * plan.weight_bytes + (shape.parameters - quantized) * max(plan.weight_bytes, SINGLE)


def _activations(plan: MemoryPlan) -> float:
    shape, tokens = plan.shape, tokens_in_pass(plan)
    layer = _layer_bytes(plan)
    kept = shape.hidden * SINGLE if plan.checkpointing else layer
    chunk = CHUNK_ELEMENTS_GPU if plan.on_accelerator else CHUNK_ELEMENTS
    logits = min(chunk, tokens * shape.vocabulary) * LOGITS_COPIES * SINGLE
    head = shape.vocabulary * shape.hidden * SINGLE if plan.trained >= shape.parameters else 0  # its gradient's summand
    kept_in_all = tokens * (shape.layers * kept + (layer if plan.checkpointing else 0)) + logits + head
    return kept_in_all * (1.0 if plan.on_accelerator else HEAP_OVERHEAD)


def _layer_bytes(plan: MemoryPlan) -> float:
    """What one token leaves in one decoder layer for the backward pass."""
    shape, width = plan.shape, plan.compute_bytes
    queries = shape.heads * shape.head_dim
    norms = 2 * shape.hidden * (2 * SINGLE + width)  # input and normalised in float32, result as matmuls take it
    attention = 4 * queries * width  # queries, output, and keys and values, repeated for each head
    if not plan.on_accelerator:  # the mask of completions that share a prompt, in float32
        packed = plan.prompt_tokens + plan.generations * plan.completion_tokens
        attention += min(packed, plan.pass_tokens) * SINGLE
    mlp = 4 * shape.intermediate * width  # gate, its activation, up and their product
    return norms + attention + mlp


def _sampling(plan: MemoryPlan) -> float:
    shape = plan.shape
    if plan.server_share is not None:
        cached = plan.cached_tokens * shape.kv_values_per_token * plan.compute_bytes
        return plan.server_weights + plan.server_share * cached
    rows = plan.prompts * plan.generations
    tokens = min(plan.cached_tokens, plan.prompts * plan.prompt_tokens + rows * plan.completion_tokens)
    logits = min(SAMPLED_ELEMENTS, rows * shape.vocabulary) * LOGITS_COPIES * SINGLE
    return tokens * shape.kv_values_per_token * plan.compute_bytes + logits


def gib(size: float) -> str:
    """Bytes as GiB, with one decimal."""
    return f"{size / GIB:.1f}"
