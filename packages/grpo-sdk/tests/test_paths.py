from pathlib import Path

import pytest

from grpo_sdk.errors import UserError
from grpo_sdk.paths import check_makeable


def test_a_folder_that_cannot_be_made_is_refused_before_it_is_needed(tmp_path: Path) -> None:
    check_makeable(tmp_path / "new" / "deep", "output_dir=new")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^output_dir=x: nothing can be made in .*/file: Not a directory\. Give "):
        check_makeable(tmp_path / "file" / "runs", "output_dir=x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"nothing can be made in .*/link"):
        check_makeable(tmp_path / "link", "output_dir=x")
