"""The zoo has the published sizes, and names that are wrong say so."""

import pytest
import torch

from lingraft import LingraftError
from lingraft.model.zoo import MODELS, build, count_neurons, count_parameters


@pytest.mark.parametrize(
    ("name", "neurons"),
    [
        ("cnn-b", 16_634),
        ("conv-big", 62_464),
        ("conv-huge", 229_888),
        ("conv-huge-bn", 229_888),
        ("resnet-4b", 14_436),
        ("digits-cnn", 1_600),
    ],
)
def test_neurons_as_published(name, neurons):
    assert count_neurons(name) == neurons


def test_conv_huge_has_the_papers_parameters():
    with torch.device("meta"):
        assert count_parameters(build("conv-huge")) == 17_190_602


def test_batch_norm_stands_before_every_activation():
    with torch.device("meta"):
        model = build("conv-huge-bn")
        logits = model(torch.empty(2, 3, 32, 32))
    before = [type(model[i - 1]).__name__ for i, layer in enumerate(model) if isinstance(layer, torch.nn.ReLU)]
    assert before == ["BatchNorm2d"] * 5 + ["BatchNorm1d"]
    assert logits.shape == (2, 10)
    assert count_parameters(model) == 17_190_602 + 2 * (2 * 64 + 3 * 128 + 512)


HALVES = [name for name in MODELS if name.endswith("-half")]


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("shape", [None, (1, 28, 28)])
def test_a_half_has_half_the_neurons_of_every_layer_and_is_the_same_else(name, shape):
    with torch.device("meta"):
        half, whole = (build(each, shape, classes=7) for each in (name, name.removesuffix("-half")))
    narrow = wide = torch.empty(1, *(shape or MODELS[name].input_shape), device="meta")
    neurons = 0
    for few, many in zip(half, whole, strict=True):
        narrow, wide = few(narrow), many(wide)
        assert type(few) is type(many)
        for what in ("kernel_size", "stride", "padding"):
            assert getattr(few, what, None) == getattr(many, what, None)
        if isinstance(few, torch.nn.ReLU):
            assert narrow.shape[2:] == wide.shape[2:]  # maps of the same size, half as many
            assert 2 * narrow.numel() == wide.numel()
            neurons += narrow.numel()
    assert neurons == count_neurons(name, shape)
    assert narrow.shape == wide.shape == (1, 7)


def test_there_is_a_half_of_what_the_tables_need():
    assert HALVES == ["cnn-b-half", "conv-big-half", "digits-cnn-half"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [None, (1, 28, 28)])
def test_forward_gives_logits(name, shape):
    if name.startswith("conv-huge"):
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
