"""Verdicts kept in a run folder, so that a run that was stopped goes on where it was.

    verdicts.jsonl           one line for each image that was done, appended and flushed
    corners/verdicts.jsonl   the same of corner cases, which are harder than other images: a VA over all verdicts of a
                             run, as a report shows it, must not count them in
    witnesses/               counterexamples as safetensors files, named after data set, image and ε, and after
                             the question where another one has that name

A verdict is used again only if it answers the same question: the same network as the verifier converted it, image,
region and margins (`digest.py`), of a model in the same precision, whatever name it is kept under. Those of version
0.1.0 name the weights instead, which do not say all that a network computes: they are read, and reports show them, but
the images are verified again.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingraft.ball import Range, eps_name, kept
from lingraft.errors import LingraftError
from lingraft.files import append_line, read_lines
from lingraft.names import short_name
from lingraft.runs import Run, load_tensors, save_tensors
from lingraft.runs.summary import VERDICTS
from lingraft.solver.confirmation import checked
from lingraft.solver.digest import SHORT, digest_network, digest_question
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result

#: Reasons of unknown that more time, or nothing, would change; the others (crashed, error) are worth another try.
LASTING = ("time", "memory", "numerical")


def record_of(result: Result) -> dict[str, Any]:
    """A JSON-able record: bounds by what the label is compared with, no tensors; infinity and NaN are null."""
    return {
        "index": result.index,
        "label": result.label,
        "eps": result.eps,
        "verdict": result.verdict,
        "reason": result.reason,
        "stage": result.stage,
        "seconds": round(result.seconds, 4),
        "crown": _by_name(result.against, result.crown),
        "alpha": _by_name(result.against, result.alpha),
        "branched": result.branched,
        "unstable": result.unstable,
        "neurons": result.neurons,
        "domains": result.domains,
        "memory": round(result.memory, 1),
        "error": result.error,
        "certificate": result.certificate,
        "checked": result.checked,
    }


def result_of(record: Mapping[str, Any]) -> Result:
    """The result that a record was made of, without its witness."""
    crown, alpha = ({int(j): _number(b) for j, b in record[name].items()} for name in ("crown", "alpha"))
    return Result(
        verdict=record["verdict"],
        stage=record["stage"],
        reason=record["reason"],
        seconds=float(record["seconds"]),
        crown=list(crown.values()),
        alpha=list(alpha.values()),
        branched=None if record.get("branched") is None else float(record["branched"]),  # as before version 0.2.0
        unstable={name: int(count) for name, count in record["unstable"].items()},
        domains=int(record["domains"]),
        memory=float(record["memory"]),
        neurons=int(record["neurons"]),
        index=int(record["index"]),
        label=record["label"],
        eps=record["eps"],
        against=list(crown),
        error=record["error"],
        certificate=_said(record.get("certificate")),  # version 0.1.0 said nothing
        checked=_said(record.get("checked")),
    )


def _by_name(names: list[int], bounds: list[float]) -> dict[str, float | None]:
    return {str(j): b if math.isfinite(b) else None for j, b in zip(names, bounds, strict=False)}


def _said(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


class Verdicts:
    """The verdicts of one run folder on images of `data`, which have these `indices` there (default: 0, 1 …).

    Those of images whose index is in `apart` are kept with the corner cases.
    """

    def __init__(
        self,
        run: Run,
        data: str,
        request: Request,
        limits: Limits,
        indices: Sequence[int] | None = None,
        apart: Collection[int] = (),
    ):
        self.run, self.data, self.request, self.limits, self.apart = run, data, request, limits, apart
        self.indices = range(len(request)) if indices is None else indices
        #: that of the model, which replays counterexamples and may get an image wrong by its rounding alone
        self.precision = str(request.own_precision(request.images[:0]).dtype)
        self.weights, self.network = digest_weights(run), digest_network(request.network.nodes)

    def known(self) -> dict[int, Result]:
        """Results that need not be found again, by the number of the image in the request.

        One that is kept under another name, of other weights that compute the same, or with the corner cases, only is
        kept under this one too, for reports.
        """
        kept: dict[Any, list[tuple[Path, dict[str, Any]]]] = {}
        for path in (self.run.corner_verdicts_path, self.run.verdicts_path):
            for record in read_lines(path):
                kept.setdefault(_key(record), []).insert(0, (path, record))
        found = {}
        for i, index in enumerate(self.indices):
            name = {"data": self.data, "index": index, "eps": self._eps, "weights": self.weights}
            known = kept.get(_key(self._about(i)), [])
            # the newest first, but those of this name before others
            for path, record in sorted(known, key=lambda each: not name.items() <= each[1].items()):
                result = self._usable(i, record)
                if result is not None:
                    in_file = path == self.run.verdicts_path or index in self.apart
                    if not (in_file and name.items() <= record.items()):
                        append_line(self._path(index), {**record, **name})
                    result.index, result.eps, found[i] = index, self._eps, result
                    break
        return found

    def keep(self, i: int, result: Result) -> None:
        """Add the result of image `i` to the file; its witness first, so that no record is without it.

        One that is kept again, as its certificate was checked since, takes the place of what was known of it.
        """
        record = {**self._about(i), **record_of(result)}
        if result.witness is not None:
            record["witness"] = name = self._witness_name(result.index, record["question"])
            about = {"label": result.label, "eps": result.eps, "weights": self.weights, "question": record["question"]}
            save_tensors(self.run.path / name, {"witness": result.witness}, about)
        append_line(self._path(result.index), record)

    def _witness_name(self, index: int, question: str) -> str:
        """Where a counterexample is kept, in the place of none to another question about these weights."""
        assert self.request.eps is not None
        radius = f"{self.request.eps:.6g}".replace(" #", "-")
        name = f"witnesses/{short_name(self.data)}-{index}-eps{radius}"
        try:
            _, about = load_tensors(self.run.path / f"{name}.safetensors")
        except LingraftError:
            about = {}  # none yet, or damaged
        if about.get("weights") == self.weights and about.get("question", question) != question:
            name += f"-{question[:SHORT]}"
        return f"{name}.safetensors"

    @property
    def _eps(self) -> float | str | None:
        return None if self.request.eps is None else eps_name(self.request.eps)

    def _path(self, index: int) -> Path:
        return self.run.corner_verdicts_path if index in self.apart else self.run.verdicts_path

    def _about(self, i: int) -> dict[str, Any]:
        """What a verdict on image `i` depends on, and the limits it is found under."""
        assert self.request.labels is not None
        return {
            "question": digest_question(self.network, self.request.problem(i)),
            "network": self.network,
            "weights": self.weights,
            "data": self.data,
            "image": digest_image(self.request.images[i]),
            "index": self.indices[i],
            "label": self.request.labels[i],
            "eps": self._eps,
            "clip": _range(self.request.clip),
            "precision": self.precision,
            "double": self.limits.double,
            "timeout": self.limits.timeout,
            "memory_limit": self.limits.memory,
            "seed": self.limits.seed,
            "branching": self.limits.branching,
        }

    def _usable(self, i: int, record: Mapping[str, Any]) -> Result | None:
        """The result of a record about image `i`, if trying again could not give a better one within the limits."""
        try:
            result = result_of(record)
            result.against = self.request.against(i)
            if result.verdict not in VERDICTS:
                return None
            if result.verdict == "unknown":
                same = record["seed"] == self.limits.seed and record["memory_limit"] == self.limits.memory
                same = same and record.get("branching", "smart") == self.limits.branching  # 0.1.0 knew no other
                enough = record["timeout"] >= self.limits.timeout
                return result if same and enough and result.reason in LASTING else None
            late = result.seconds > self.limits.timeout
            if late and record["timeout"] != self.limits.timeout:
                return None  # too late for the limit that is asked for now; under its own it was, and stays, too late
            if result.verdict == "falsified":
                tensors, _ = load_tensors(self.run.inside(record["witness"]))
                result.witness = tensors["witness"]
                return result if checked(self.request, i, result).verdict == "falsified" else None
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, LingraftError):
            return None  # damaged, or a witness that is gone: find it again
        return result


def _key(record: Mapping[str, Any]) -> tuple[str, ...]:
    precision = str(record.get("precision", torch.float32))  # verdicts did not always name it
    return (precision, *(str(record.get(name)) for name in ("question", "double")))


def _range(clip: Range) -> list[float | str] | None:
    return None if clip is None else [kept(end) if isinstance(end, float) else eps_name(end) for end in clip]


def digest_weights(run: Run) -> str:
    """Changes with the architecture and the weights of a run: what a report shows verdicts of."""
    description = run.describe()
    digest = hashlib.sha256(repr((description.architecture, description.input_shape)).encode())
    digest.update(run.weights_path.read_bytes())
    return digest.hexdigest()


def digest_image(image: Tensor) -> str:
    """Changes with the pixels (float32) of an image."""
    return hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()[:16]
