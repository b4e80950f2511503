"""Which method gives the most VA at the SA one needs: several settings, short trainings first, the better half on.

OUT/runs/              the run folders of all settings, each named after what it depends on
OUT/stages.jsonl       trainings that are finished, and how long they took
OUT/points.jsonl       what settings reached on validation images
OUT/front.json, .csv   the networks that were tested, and which are on the front; front.svg, .png the picture
"""

import csv
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from lingraft.attack.evaluation import correct
from lingraft.ball import Radius, eps_name, largest, radius
from lingraft.data import ImageSet, spec_of
from lingraft.data import load as load_data
from lingraft.device import limited_threads, resolve_device
from lingraft.errors import LingraftError
from lingraft.files import append_line, read_json, read_lines, replacing, write_json
from lingraft.model.code import is_code
from lingraft.names import short_name
from lingraft.pareto import best_half
from lingraft.pool.place import Place
from lingraft.progress import console
from lingraft.report.front_figure import front_panel
from lingraft.report.panels import draw
from lingraft.runs import Run, load
from lingraft.runs.holding import holding
from lingraft.solver.budget import usable_cores
from lingraft.solver.request import Limits
from lingraft.work.experiments.plan import make_cell, matching, with_parents
from lingraft.work.experiments.recipe import Network, Row, recipes, scales
from lingraft.work.experiments.reproduce import Reproduction
from lingraft.work.experiments.stage import Stage
from lingraft.work.front_points import Tested, Tried, advice, on_front
from lingraft.work.given import images_of
from lingraft.work.halving import halving
from lingraft.work.validation import Validation
from lingraft.work.verify import verify

#: How many times the epochs of a round its next one has at most, and at least, or there is none.
MOST_GROWTH, LEAST_GROWTH = 4.0, 1.5
#: Share of the hours in which the first round must have begun its last setting.
FIRST_ROUND = 0.6
#: A grafted network is fine-tuned for this share of the epochs of its training, at least 1.
TUNING = 0.25
#: Test images for which there is always time.
LEAST_TESTED = 20


@dataclass(frozen=True)
class Front:
    """The networks that were tested, what the rounds before found on validation images, and where it all is."""

    folder: Path
    tested: list[Tested]
    rounds: list[list[Tried]]
    #: settings that there was no time for, and those whose training diverged
    left_out: list[str]
    advice: list[str]
    files: list[Path]

    @property
    def front(self) -> list[Tested]:
        """Those that no other beats in SA and VA, by rising SA."""
        return on_front(self.tested)


def front(
    model: str,
    data: str,
    *,
    test_data: str | None = None,
    eps: float | str | None = None,
    hours: float = 3.0,
    out: str | Path | None = None,
    row: Sequence[str] = (),
    min_sa: float | None = None,
    first_epochs: int = 4,
    epochs: int = 60,
    validation_images: int = 50,
    validation_timeout: float = 2.0,
    images: int = 200,
    timeout: float = 20.0,
    workers: int | None = None,
    ray: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    device: str = "auto",
) -> Front:
    """The front of VA over SA that the settings of the recipe "front" reach with this network in so many hours.

    Each setting (`row`: only those whose name is, or else contains, one of these texts) is trained for `first_epochs`
    and verified on validation images; the better half by SA and VA goes on with more epochs, up to `epochs`, as long as
    there is time, each training from its beginning. Those that are left are tested: SA on all test images, VA on the
    first `images` with `timeout` seconds each, or on fewer if that would take too long. `hours` are those of work,
    wherever it was interrupted: called again with the same arguments it goes on. It is an estimate that is kept to
    by leaving out epochs, settings and test images, not a limit that anything is killed at. If `ray` is the address
    of a Ray cluster the trainings of a round run there side by side, each on one CPU, and so does verification; all
    nodes must see the folder then, `hours` are those of all CPUs together, and no setting is left out.

    `model` is a network of the zoo, or an ONNX file; `data` and `test_data` are names or files of data sets, which say
    the default of `eps`. Everything is kept in `out` (default: fronts/DATA-MODEL).
    """
    if not (math.isfinite(hours) and hours > 0):
        raise LingraftError(f"--hours must be above 0, not {hours}.")
    if not 1 <= first_epochs <= epochs:
        raise LingraftError(f"--first-epochs must be from 1 to --epochs, not {first_epochs} of {epochs}.")
    if min(images, validation_images) < 1:
        raise LingraftError("a front needs at least 1 test image and 1 validation image.")
    if min_sa is not None and not 0 < min_sa <= 1:
        raise LingraftError(f"the standard accuracy that is needed must lie between 0 and 1, not {min_sa}.")
    for limit in (timeout, validation_timeout):
        Limits(limit)
    if is_code(model):
        raise LingraftError(
            f"{model} is code, which run folders do not keep. Give a network of the zoo, or an ONNX file."
        )
    place, ball, rows = Place(workers, ray), _radius(eps, data), _rows(row)
    folder = Path(out or Path("fronts") / f"{short_name(data)}-{short_name(model)}")
    question = {"model": model, "data": data, "eps": eps_name(ball), "seed": seed}
    _require_same(folder, question)
    held_out, test = load_data(data, "validation"), images_of(test_data or data, "test", None)[1]
    with limited_threads(threads), holding(folder):
        search = _Search(
            Reproduction(folder),
            Network(name=model, model=model, data=data, eps=str(eps_name(ball))),
            {"test-data": test_data or False, "device": False if device == "auto" else device},
            rows,
            Validation(held_out, ball, min(validation_images, len(held_out)), validation_timeout, place, seed),
            hours * 3600,
            (first_epochs, epochs),
            (min(images, len(test)), timeout),
            resolve_device(device),
        )
        rounds = search.rounds()
        kept = best_half(rounds[-1], _figures)
        count = search.test_images_for(kept)
        tested = [search.test(each, test, count) for each in kept]
        said = advice(tested, min_sa)
        files = _write(folder, {**question, "hours": hours}, tested, rounds, said, min_sa)
    return Front(folder, tested, rounds, search.left_out, said, files)


def _require_same(folder: Path, question: dict[str, Any]) -> None:
    """Refuse to write over a front that answers another question."""
    path = folder / "front.json"
    answered = read_json(path) if path.exists() else question
    other = [f"{name} {answered.get(name)}" for name, value in question.items() if answered.get(name) != value]
    if other:
        raise LingraftError(f"{folder} holds a front of {', '.join(other)}. Give another folder with -o.")


def _radius(eps: float | str | None, data: str) -> Radius:
    usual = spec_of(data).eps if eps is None else eps
    if usual is None:
        raise LingraftError(f"{data} says no radius. Give --eps, the radius to be robust in.")
    found = radius(usual)
    if largest(found) == 0:
        raise LingraftError("with a radius of 0 there is nothing to verify. Give --eps.")
    return found


def _rows(texts: Sequence[str]) -> list[Row]:
    """The settings that are meant; those of a network of another size belong to the recipe alone."""
    rows = [row for row in recipes()["front"].rows if "model" not in row.train]
    found = matching([row.name for row in rows], texts)
    if not found:
        raise LingraftError(f"no setting is called {', '.join(texts)}. There are: {', '.join(r.name for r in rows)}.")
    return [row for row in rows if row.name in found]


def _figures(tried: Tried) -> tuple[float, float]:
    return tried.sa, tried.va


@dataclass
class _Search:
    """Rounds of trainings: what they reached and how long they took is read from the folder where it is known."""

    work: Reproduction
    network: Network
    more: dict[str, Any]
    rows: list[Row]
    validation: Validation
    seconds: float
    #: of the first round, and at most
    epochs: tuple[int, int]
    #: test images, and seconds for each
    test_images: tuple[int, float]
    device: torch.device

    def __post_init__(self) -> None:
        self.left_out: list[str] = []
        #: key of a stage → the error that ended it on Ray
        self.failed: dict[str, LingraftError] = {}
        #: seconds of all that was needed so far; the same when it is needed again
        self.used: dict[str, float] = {}

    def rounds(self) -> list[list[Tried]]:
        """What each round found; the last one is followed by the test."""
        return halving(self.rows, self.epochs[0], self._round, self._next_epochs, _figures)

    def _round(self, rows: Sequence[Row], epochs: int) -> list[tuple[Row, Tried]]:
        """All of them, in the first round as many as there is time for; without those whose training diverges."""
        found: list[tuple[Row, Tried]] = []
        place = self.validation.place
        if place.ray is not None:
            stages = [stage for row in rows for stage in with_parents(self._stage(row, epochs))]
            self.failed = self.work.run_on_ray(stages, place.ray, self.device.type == "cuda")
        for number, row in enumerate(rows):
            may_leave_out = epochs == self.epochs[0] and place.ray is None
            if may_leave_out and found and sum(self.used.values()) > FIRST_ROUND * self.seconds:
                self.left_out += [each.name for each in rows[number:]]
                _say(f"no time for {len(rows) - number} more settings: {', '.join(self.left_out)}")
                break
            spent = f"{_minutes(sum(self.used.values()))} of {_minutes(self.seconds)} used"
            _say(f"{row.name}, {epochs} epochs: {number + 1} of {len(rows)} ({spent})")
            tried = self._try(row, epochs)
            if tried is not None:
                found.append((row, tried))
                _say(f"  SA {tried.sa:.2%}, VA {tried.va:.2%}, undecided {tried.undecided:.2%} on validation images")
        if not found:
            raise LingraftError("the training of every setting diverged. Try other data, or another network.")
        return found

    def _stage(self, row: Row, epochs: int) -> Stage:
        """The stage that makes the run of a setting with so many epochs of training."""
        run = make_cell(recipes()["front"], self.network, row, None, self.validation.seed, scales()["laptop"]).run
        trained = run if run.parent is None else run.parent
        options = {**trained.options, **self.more, "epochs": epochs}
        if "ramp" in options:  # for the recipe's own number of epochs: of fewer the radius may not take all to grow
            options["ramp"] = min(int(options["ramp"]), epochs // 4)
        trained = replace(trained, options=options)
        if run.parent is None:
            return trained
        tuning = max(1, round(TUNING * epochs))
        # `graft` measures what it did on test images, of which nothing here makes use
        more = {"device": self.more["device"], "epochs": tuning, "images": 1}
        return replace(run, options={**run.options, **more}, parent=trained)

    def _try(self, row: Row, epochs: int) -> Tried | None:
        """From the folder, or trained and verified now; None if the training diverged."""
        stage, validation = self._stage(row, epochs), self.validation
        stages = list(with_parents(stage))
        try:
            for each in stages:
                if each.key in self.failed:
                    raise self.failed[each.key]
            self.work.run(stages)
        except LingraftError as error:
            if "training diverged" not in str(error):
                raise
            self.left_out.append(row.name)
            _say(f"  {error}")
            return None
        finished = self.work.finished()
        for each in stages:
            self.used[each.key] = float(finished[each.command, each.key]["seconds"])
        asked = {"key": stage.key, "images": validation.images, "timeout": validation.timeout}
        for record in read_lines(self._points):
            if asked.items() <= record.items():
                tried = replace(Tried.of(record), name=row.name, run=str(stage.folder(self.work.runs)))
                break
        else:
            tried = self._measure(row.name, stage, epochs)
            append_line(self._points, {**tried.as_dict(), **asked})
        self.used[f"measured {stage.key}"] = tried.seconds
        return tried

    @property
    def _points(self) -> Path:
        return self.work.folder / "points.jsonl"

    def _measure(self, name: str, stage: Stage, epochs: int) -> Tried:
        begun, folder = time.monotonic(), stage.folder(self.work.runs)
        model = load(folder)
        sa = float(correct(model, self.validation.data, device=self.device).double().mean())
        summary = self.validation.verify(Run(folder), model, f"verifying {name}")
        assert summary.va is not None
        assert summary.unknown_share is not None
        return Tried(
            name, stage.key, str(folder), epochs, sa, summary.va, summary.unknown_share, summary.images,
            self.validation.timeout, round(time.monotonic() - begun, 1),
        )  # fmt: skip

    def _next_epochs(self, kept: Sequence[Tried], epochs: int) -> int | None:
        """As many as there is time for, with what the test will take set aside; None: too few more to be worth it."""
        _say(f"after {epochs} epochs: {', '.join(each.name for each in kept)} go on")
        rows = {row.name: row for row in self.rows}
        stages = {s.key for each in kept for s in with_parents(self._stage(rows[each.name], epochs))}
        training = sum(self.used[key] for key in stages)
        test = self.test_images[0] * self._seconds_of_image(kept)
        left = self.seconds - sum(self.used.values()) - test - sum(each.seconds for each in kept)
        growth = min(left / max(training, 1e-3), MOST_GROWTH, self.epochs[1] / epochs)
        following = math.floor(epochs * growth)
        return following if growth >= LEAST_GROWTH and following > epochs else None

    def _seconds_of_image(self, kept: Sequence[Tried]) -> float:
        """What one test image takes of all of them, about: as on validation images, and to its limit if undecided."""
        wanted = self.validation.place.workers
        workers = max(1, usable_cores() if wanted is None else wanted)
        undecided, measured = sum(each.undecided for each in kept), sum(each.seconds for each in kept)
        return undecided * self.test_images[1] / workers + measured / self.validation.images

    def test_images_for(self, kept: Sequence[Tried]) -> int:
        """How many test images there is time for, the same for all; on a cluster all that were asked for."""
        images, _ = self.test_images
        left = self.seconds - sum(self.used.values())
        if self.validation.place.ray is not None or images * self._seconds_of_image(kept) <= left:
            return images
        count = min(images, max(LEAST_TESTED, math.floor(left / self._seconds_of_image(kept))))
        if count < images:
            _say(f"time to test {count} of {images} images")
        return count

    def test(self, tried: Tried, test: ImageSet, images: int) -> Tested:
        """The figures on the first test images; verdicts that its run holds are not found again."""
        timeout, place = self.test_images[1], self.validation.place
        _say(f"testing {tried.name} on {images} images")
        results = verify(
            tried.run, images=images, timeout=timeout, workers=place.workers, ray=place.ray, seed=self.validation.seed
        )
        sa = float(correct(load(tried.run), test, device=self.device).double().mean())
        counts = results.summary
        return Tested(
            tried.name, tried.run, tried.epochs, sa, len(test), counts.verified, counts.unknown, counts.images, timeout
        )


def _write(
    folder: Path,
    about: dict[str, Any],
    tested: Sequence[Tested],
    rounds: Sequence[Sequence[Tried]],
    said: Sequence[str],
    min_sa: float | None,
) -> list[Path]:
    """front.json, front.csv, front.svg and front.png; gives their paths."""
    edge = on_front(tested)
    rows = [
        {**asdict(each), "va": each.va, "va_low": each.interval[0], "va_high": each.interval[1], "front": each in edge}
        for each in tested
    ]
    paths = [folder / f"front.{kind}" for kind in ("json", "csv", "svg", "png")]
    tried = [[each.as_dict() for each in found] for found in rounds]
    write_json(paths[0], {**about, "tested": rows, "rounds": tried, "advice": list(said)})
    with replacing(paths[1]) as part, open(part, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    figure = draw([front_panel([each.place for each in tested], min_sa)])
    for path in paths[2:]:
        with replacing(path) as part:
            figure.savefig(part, format=path.suffix[1:], dpi=150)
    return paths


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _say(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False)
