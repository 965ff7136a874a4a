"""Platforms are recognised by what they set."""

from pathlib import Path

import pytest

from grpo_core.profiles.platforms import detect

HERE = Path("/srv/work")


@pytest.mark.parametrize(("environ", "host", "folder", "name", "why"), [
    ({"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": "2"}, "node3", HERE, "SLURM", "SLURM_JOB_ID=17, 2 nodes"),
    ({"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": "two"}, "node3", HERE, "SLURM", "SLURM_JOB_ID=17, 1 node"),
    ({"COLAB_GPU": "", "COLAB_RELEASE_TAG": ""}, "a", HERE, "generic", "no sign"),
    ({"COLAB_RELEASE_TAG": "release-colab"}, "a", HERE, "Colab", "COLAB_RELEASE_TAG"),
    ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, "a", HERE, "Kaggle", "KAGGLE_KERNEL_RUN_TYPE"),
    ({}, "lambda-hyperplane", HERE, "Lambda", "lambda-hyperplane"),
    ({}, "a", Path("/home/ubuntu/lambda/run"), "Lambda", "/home/ubuntu/lambda/run"),
])  # fmt: skip
def test_platforms_are_recognised(environ: dict[str, str], host: str, folder: Path, name: str, why: str) -> None:
    assert len(detect({"SLURM_JOB_ID": "x" * 5000}, "a", HERE).why) < 200
    platform = detect(environ, host, folder)
    assert platform.name == name
    assert why in platform.why
    assert platform.advice.endswith(".") == (name != "generic")
