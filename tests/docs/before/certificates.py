"""A certificate about one digit, under the name that `lingraft verify --certificates` would give it."""

from pathlib import Path

import torch
from torch import nn

from lingraft.data import load
from lingraft.formats.certificate_writer import claim_of_image
from lingraft.formats.onnx_export import export_onnx
from lingraft.pool.images import verify_each
from lingraft.pool.place import HERE
from lingraft.solver.request import Limits, Request
from lingraft.work.certify import Certifier

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)).eval()
pixels = load("digits", "test").pixels()[7:8]
request = Request(model, pixels, model(pixels).argmax(1), eps=0.001)
((_, result),) = verify_each(request, Limits(10, prove=True), HERE)
export_onnx(model, "proofs/model.onnx", input_shape=(1, 8, 8))
claim = claim_of_image(request, 0, {"data": "digits", "split": "test", "index": 7})
Certifier(Path("proofs/model.onnx"), Path("proofs"), False).add("digits-7-eps0.1", claim, result, request.network)
