"""Images of the user's own that a run keeps."""

import pytest

from lingraft import LingraftError
from lingraft.data import load
from lingraft.runs import ModelDescription, Run
from lingraft.runs.own_images import called, kept_images


def test_a_run_that_names_images_outside_of_it_is_not_trusted(tmp_path):
    with pytest.raises(LingraftError, match="outside of it"):
        kept_images(Run(tmp_path), "../../secret")


def test_images_are_those_of_the_data_set_only_if_they_begin_it(tmp_path):
    run = Run(tmp_path / "run")
    run.write_description(ModelDescription(architecture=None, input_shape=(1, 8, 8), classes=10, data="digits"))
    test = load("digits", "test")
    assert called(run, test.take(20)) == "digits"
    assert called(run, test) == "digits"
    assert called(run, test.take(slice(1, 21))) == "own"
    assert called(run, load("digits", "train").take(20)) == "own"
