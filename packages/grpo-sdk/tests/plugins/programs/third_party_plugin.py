"""Says what the plugin brings."""

from grpo_sdk import Variant, hookimpl


@hookimpl
def grpo_variants():
    return {
        "loss": {"mine": Variant("third_party:loss", formula="-A rho", aggregation="sequence_mean")},
        "advantage": {"mine": Variant("third_party:baseline", formula="r - shift", needs_group=False)},
        "kl": {"mine": "third_party:kl"},
        "metric": {"mine": "third_party:metric", "broken": "third_party:broken"},
        "tracker": {"mine": "third_party:Tracker"},
        "engine": {"mine": "third_party:Engine"},
    }
