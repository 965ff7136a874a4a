"""Names of `grpo_core.callbacks` from version 0.1."""

import pytest

import grpo_core.callbacks


def test_choice_is_resolved_default_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="now ResolvedDefault"):
        assert grpo_core.callbacks.Choice is grpo_core.callbacks.ResolvedDefault
    with pytest.raises(AttributeError, match="has no attribute 'Chioce'"):
        grpo_core.callbacks.Chioce  # noqa: B018
