"""The plugin of `grpo-tasks-games`: its games, the model `games-tiny`, and the commands `grpo games …`."""

from __future__ import annotations

from pathlib import Path

from grpo_sdk import EmbeddedModel, Game, hookimpl
from grpo_tasks_games import connect_four, nim, tictactoe
from grpo_tasks_games.kuhn import game as kuhn_poker


@hookimpl
def grpo_games() -> list[Game]:
    """Return the games of the package."""
    return [tictactoe.GAME, kuhn_poker.GAME, connect_four.GAME, nim.GAME]


@hookimpl
def grpo_models() -> list[EmbeddedModel]:
    """Return a model that knows the moves of two games and plays them badly."""
    return [
        EmbeddedModel(
            name="games-tiny",
            path=str(Path(__file__).parent / "models" / "games-tiny"),
            description="1.8 M parameters, plays tic-tac-toe and Kuhn poker badly; learns by self-play in minutes",
            defaults={
                "trainer.baseline": "role",
                "trainer.scale_rewards": "none",
                "trainer.prompts_per_step": 24,
                "trainer.num_generations": 4,
                "trainer.max_steps": 140,
                "trainer.learning_rate": 3e-4,
                "trainer.lr_scheduler_type": "cosine",
                "trainer.warmup_steps": 10,
                "trainer.adam_beta2": 0.99,
                "trainer.entropy_coef": 0.02,
                "trainer.beta": 0.1,  # without a KL term, self-play goes round in circles where something is hidden
                "trainer.max_prompt_length": 64,
                "trainer.max_completion_length": 8,
            },
            task_options={"style": "short", "openings": "6", "canonical": "true"},
            task_defaults={
                "games.tictactoe": {
                    "trainer.value_head": True,  # says which move lost
                    "trainer.baseline": "value",
                    "trainer.beta": 0.0,  # nothing is hidden, and the start is weak
                    "trainer.entropy_coef": 0.06,  # keeps the lines of play many, which perfect play needs
                    "trainer.entropy_controller": "decay",  # and then lets the policy settle
                    "trainer.entropy_controller_args": {"half_life": 200},
                    "trainer.num_iterations": 2,
                    "trainer.prompts_per_step": 48,  # many starts; the value head compares, not the group
                    "trainer.num_generations": 2,
                    "trainer.max_steps": 300,
                },
                # The policy approaches the equilibrium of the game with the penalty, and the reference, an average of
                # earlier policies, moves on from it. The exact KL(π_ref‖π) pulls at moves that are no longer sampled,
                # too. Momentum would carry two sides that learn from each other round the equilibrium.
                "games.kuhn_poker": {
                    "trainer.beta": 0.3,
                    "trainer.kl": "full",
                    "trainer.kl_args": {"direction": "forward"},
                    "trainer.kl_placement": "loss",
                    "trainer.ref_model_sync_steps": 6,
                    "trainer.ref_model_mixup_alpha": 0.1,
                    "trainer.adam_beta1": 0.0,
                    "trainer.entropy_coef": 0.0,
                    "trainer.prompts_per_step": 48,
                    "trainer.max_steps": 300,
                },
            },
        )
    ]


@hookimpl
def grpo_commands() -> dict[str, str]:
    """Return `grpo games`: ratings and exploitability."""
    return {"games": "grpo_tasks_games.commands:games"}
