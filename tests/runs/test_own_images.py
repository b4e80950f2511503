"""Images of the user's own that a run keeps."""

import pytest

from lingraft import LingraftError
from lingraft.runs import Run
from lingraft.runs.own_images import kept_images


def test_a_run_that_names_images_outside_of_it_is_not_trusted(tmp_path):
    with pytest.raises(LingraftError, match="outside of it"):
        kept_images(Run(tmp_path), "../../secret")
