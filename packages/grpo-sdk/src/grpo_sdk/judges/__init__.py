"""Rewards that ask a model: grades by a rubric, comparisons of answers, classifiers and reward models.

    from grpo_sdk.judges import Endpoint, rubric

    polite = rubric("The answer is polite and correct.", model=Endpoint("http://localhost:8000/v1", "qwen"), weight=0.5)
    Task(…, rewards=(form, polite))

A judge is asked by the process that scores, never by the workers that run a task's functions.
"""

from grpo_sdk.judges.known import Known
from grpo_sdk.judges.models import CustomModel, Endpoint, LocalModel, ModelLimits
from grpo_sdk.judges.rewards import classifier, pairwise, rubric

__all__ = ["CustomModel", "Endpoint", "Known", "LocalModel", "ModelLimits", "classifier", "pairwise", "rubric"]
