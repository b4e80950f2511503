"""A run of a small network, and two images."""

import torch

from lingraft.data import load
from lingraft.model import zoo
from lingraft.runs import ModelDescription, Run

torch.manual_seed(0)
run = Run("runs/digits")
run.write_description(ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10))
run.save_weights(zoo.build("digits-cnn"))
test = load("digits", "test").take(2)
images, labels = test.pixels(), test.labels
