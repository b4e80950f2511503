"""The zoo has the published sizes, and names that are wrong say so."""

import pytest
import torch

from lingraft import LingraftError
from lingraft.zoo import MODELS, build, count_neurons, count_parameters


@pytest.mark.parametrize(
    ("name", "neurons"),
    [("cnn-b", 16_634), ("conv-big", 62_464), ("conv-huge", 229_888), ("resnet-4b", 14_436), ("digits-cnn", 1_600)],
)
def test_neurons_as_published(name, neurons):
    assert count_neurons(name) == neurons


def test_conv_huge_has_the_papers_parameters():
    with torch.device("meta"):
        assert count_parameters(build("conv-huge")) == 17_190_602


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [None, (1, 28, 28)])
def test_forward_gives_logits(name, shape):
    if name == "conv-huge":
        pytest.skip("17 million parameters add nothing to this test")
    model = build(name, shape, classes=7)
    images = torch.rand(2, *(shape or MODELS[name].input_shape))
    assert model(images).shape == (2, 7)


def test_normalization_is_the_first_layer():
    model = build("digits-cnn", mean=[0.5], std=[0.25])
    assert model[0](torch.full((1, 1, 8, 8), 0.75)).flatten()[0] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "cnnb"}, "Did you mean 'cnn-b'"),
        ({"name": "cnn-b", "input_shape": (3, 30, 30)}, "divisible"),
        ({"name": "cnn-b", "classes": 1}, "at least 2 classes"),
        ({"name": "cnn-b", "mean": [0.0]}, "one number for each"),
    ],
)
def test_bad_input_says_what_to_do(arguments, message):
    with pytest.raises(LingraftError, match=message):
        build(**arguments)
