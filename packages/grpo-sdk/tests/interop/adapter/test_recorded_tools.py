"""The episodes that tests of all trainers play are what our own player plays now."""

import pytest
from recorded_shop import EPISODES, recorded


@pytest.mark.filterwarnings("ignore:task recorded_shop.shop. close.. of its environment failed. the pool was closed")
def test_our_player_plays_the_recorded_episodes() -> None:
    assert recorded() == EPISODES
