"""What the verdict browser of the page shows: every image with its verdict, in every run."""

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lingraft.data import ImageSet, is_known, spec_of
from lingraft.data import load as load_data
from lingraft.errors import LingraftError
from lingraft.report.study import Study, Verification
from lingraft.report.table import show_eps
from lingraft.runs import load, load_tensors
from lingraft.runs.own_images import kept_images
from lingraft.runs.verdicts import digest_image
from lingraft.solver.verifier import Result

#: Images of one data set and witnesses of one run that get a picture; the rest is listed without.
PICTURED = 1000

BATCH = 256


def verdict_browser(studies: Sequence[Study]) -> dict[str, Any]:
    """JSON-able. `sets`: data set → class names, pictures by image, why there are none; `runs`: the verifications."""
    verified = [(study, verification) for study in studies for verification in study.verifications]
    data = {name: _Pictures(name, studies) for name in sorted({verification.data for _, verification in verified})}
    runs = [_entry(study, verification, data[verification.data]) for study, verification in verified]
    return {"sets": {name: pictures.as_dict() for name, pictures in data.items()}, "runs": runs}


class _Pictures:
    """Test images of one data set, each turned into a picture once."""

    def __init__(self, name: str, studies: Sequence[Study]):
        self.classes: list[str] = []
        self.pictures: dict[int, str | None] = {}
        self.images: ImageSet | None = None
        self.why: str | None = None
        try:
            if is_known(name):
                self.classes = list(spec_of(name).class_names)
            self.images = load_data(name, "test") if is_known(name) else _kept_images(name, studies)
        except LingraftError as error:
            self.why = str(error)

    def pixels(self, record: dict[str, Any]) -> Tensor | None:
        """The image that a verdict is about, float32 in [0, 1]; None if this data set does not have it."""
        index = int(record["index"])
        if self.images is None or index >= len(self.images):
            return None
        image = self.images.pixels(slice(index, index + 1))[0]
        if digest_image(image) != record.get("image"):
            return None
        if index not in self.pictures and len(self.pictures) < PICTURED:
            self.pictures[index] = picture(image)
        return image

    def as_dict(self) -> dict[str, Any]:
        return {"classes": self.classes, "images": self.pictures, "why": self.why}


def _kept_images(name: str, studies: Sequence[Study]) -> ImageSet:
    """Images of the user's own, which `lingraft.verify` put into a run; of several runs, those of the largest."""
    kept = [images for study in studies if (images := kept_images(study.run, name)) is not None]
    if not kept:
        raise LingraftError(f"{name}: no run holds these images. Verify them with lingraft.verify(…, run=…).")
    return max(kept, key=len)


def _entry(study: Study, verification: Verification, data: _Pictures) -> dict[str, Any]:
    records, eps = verification.records, verification.eps
    shown = [_item(record, result) for record, result in zip(records, verification.results, strict=True)]
    pixels = [data.pixels(record) for record in records]
    witnesses = [_witness(study, record) for record in records]
    for what, tensors in (("taken", pixels), ("witness_taken", witnesses)):
        for item, prediction in zip(shown, _predictions(study, tensors), strict=True):
            if prediction is not None:
                item[what] = prediction
    pictured = 0
    for item, image, witness in zip(shown, pixels, witnesses, strict=True):
        if image is not None and witness is not None and pictured < PICTURED:
            item["witness"] = picture(witness)
            item["difference"] = None if isinstance(eps, str) else magnified_difference(image, witness, eps)
            pictured += 1
    low, high = verification.limits
    return {
        "name": study.name,
        "title": f"{study.name} ({verification.data}, ε = {show_eps(eps)})",
        "data": verification.data,
        "eps": show_eps(eps),
        "magnified": None if isinstance(eps, str) or eps == 0 else 0.5 / eps,
        "limit": f"{high:g}" if low == high else f"{low:g}–{high:g}",
        "images": shown,
    }


def _item(record: dict[str, Any], result: Result) -> dict[str, Any]:
    kept = ("index", "label", "verdict", "reason", "stage", "seconds", "domains", "neurons", "unstable", "error")
    item = {name: record[name] for name in kept if record[name] not in (None, {}, "")}
    if result.proof_state is not None:
        item["proof"] = result.proof_state
    bounds = {name: {k: _short(b) for k, b in record[name].items()} for name in ("crown", "alpha") if record[name]}
    return {**item, **bounds}


def _short(bound: float | None) -> float | None:
    return None if bound is None else float(f"{bound:.4g}")


def _witness(study: Study, record: dict[str, Any]) -> Tensor | None:
    if record["verdict"] != "falsified" or not record.get("witness"):
        return None
    try:
        return load_tensors(study.run.inside(record["witness"]))[0]["witness"].float()
    except (LingraftError, KeyError):
        return None  # gone; the verdict stands without its picture


def _predictions(study: Study, images: Sequence[Tensor | None]) -> list[int | None]:
    """What the network of the run takes each image for; None without an image, or without the network."""
    there = [i for i, image in enumerate(images) if image is not None]
    predictions: list[int | None] = [None] * len(images)
    if study.description.needs_code or not study.run.weights_path.exists() or not there:
        return predictions
    model = load(study.run)
    with torch.inference_mode():
        for start in range(0, len(there), BATCH):
            some = there[start : start + BATCH]
            answers = model(torch.stack([image for i in some if (image := images[i]) is not None])).argmax(1)
            for i, answer in zip(some, answers.tolist(), strict=True):
                predictions[i] = answer
    return predictions


def picture(image: Tensor) -> str | None:
    """A PNG as a data URI of an image in [0, 1] of shape (1, H, W) or (3, H, W); None for other shapes."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        return None
    pixels = (image.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    shown = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    buffer = BytesIO()
    shown.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def magnified_difference(image: Tensor, witness: Tensor, eps: float) -> str | None:
    """What the witness changes, so that ±ε is white and black, no change mid-grey (per channel)."""
    return picture(0.5 + (witness - image) / (2 * eps)) if eps > 0 else None
