"""What a plugin brings."""

from grpo_core.engines.native import NativeEngine

calls = []


def loss(logp, old_logp, advantages, mask, *, scale: float = 1.0):
    calls.append(("loss", scale))
    return -scale * advantages[:, None] * (logp - old_logp).exp()


def baseline(rewards, groups, *, shift: float = 0.0):
    calls.append(("baseline", shift))
    return rewards - shift


def kl(logp, ref_logp):
    calls.append(("kl", None))
    return (logp - ref_logp).square()


def metric(rewards, rollouts):
    return {"mine/rewards": len(rewards), "mine/tokens": sum(rollout.n_tokens for rollout in rollouts)}


def broken(batch):
    raise ValueError("no such number")


class Tracker:
    def __init__(self, run):
        self.run = run

    def numbers(self, step, values):
        calls.append(("tracker", values.get("mine/rewards")))

    def table(self, step, name, columns, rows): ...
    def note(self, step, text): ...
    def close(self, *, failed): ...


class Engine(NativeEngine):
    def generate(self, requests, sampling):
        calls.append(("engine", sampling.temperature))
        yield from super().generate(requests, sampling)
