"""Certificates checked by workers, in the background of other work."""

import math
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lingraft.formats.certificate_writer import claim_of_image
from lingraft.formats.onnx_export import export_onnx
from lingraft.pool.images import verify_each
from lingraft.pool.opening import open_pool
from lingraft.pool.place import HERE, Place
from lingraft.solver.request import Limits, Request
from lingraft.work.certify import Certifier
from lingraft.work.check_work import CheckCertificates


def problems() -> tuple[Tensor, Tensor, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    images = torch.rand(3, 6)
    return images, model(images).argmax(1), model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network and three certificates about it, the last of which is damaged."""
    folder = tmp_path_factory.mktemp("proofs")
    images, labels, model = problems()
    request = Request(model, images, labels, eps=0.001)
    export_onnx(model, folder / "model.onnx", input_shape=(6,))
    certifier = Certifier(folder / "model.onnx", folder, False)
    for i, result in verify_each(request, Limits(60, prove=True), HERE):
        certifier.add(str(i), claim_of_image(request, i, {}), result, request.network)
    damaged = folder / "2.cert"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    return folder


@pytest.mark.parametrize("place", [HERE, Place(2)])
@pytest.mark.parametrize("as_file", [True, False])
def test_accepted_and_rejected(folder: Path, place: Place, as_file: bool) -> None:
    with open_pool(CheckCertificates(folder / "model.onnx"), place, math.inf) as pool:
        for name in "012":
            path = folder / f"{name}.cert"
            pool.add(name, (lambda path=path: path) if as_file else path.read_bytes)
        found = dict(pool.answers())
    assert found["0"] is None
    assert found["1"] is None
    assert found["2"] == "the file has a wrong length"


def test_they_are_checked_while_others_work(folder: Path) -> None:
    """Tasks come one by one, answers are taken when they are there, and nothing waits for them."""
    found: dict[str, str | None] = {}
    with open_pool(CheckCertificates(folder / "model.onnx"), Place(1), math.inf) as pool:
        end = time.monotonic() + 120
        for name in ("0", "1"):
            pool.add(name, partial(Path, folder / f"{name}.cert"))
            while name not in found and time.monotonic() < end:
                time.sleep(0.02)  # the other work
                found.update(pool.answers(wait=False))
        assert found == {"0": None, "1": None}
        process = pool.workers[0].process.pid  # type: ignore[union-attr]
        ours, theirs = (os.getpriority(os.PRIO_PROCESS, which) for which in (0, process))
        assert theirs == min(19, ours + CheckCertificates.niceness), "it steps back behind those that verify"
        os.kill(process, signal.SIGSTOP)
        pool.add("2", partial(Path, folder / "2.cert"))
        assert dict(pool.answers(wait=False)) == {}
        os.kill(process, signal.SIGCONT)
        assert list(dict(pool.answers())) == ["2"]


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (9,)


@pytest.mark.slow
def test_a_check_that_crashes_is_a_rejection(folder: Path) -> None:
    with open_pool(CheckCertificates(folder / "model.onnx"), Place(1), math.inf) as pool:
        pool.add("deadly", Deadly)
        pool.add("0", partial(Path, folder / "0.cert"))
        found = dict(pool.answers())
    assert found == {"deadly": "it could not be checked: its worker ended with code 9, 2 times", "0": None}


@pytest.mark.parametrize("place", [HERE, Place(1)])
def test_a_certifier_counts_what_workers_say(folder: Path, place: Place) -> None:
    """Certificates that are in the folder already are checked too; the damaged one would have to be made again."""
    images, labels, model = problems()
    request = Request(model, images, labels, eps=0.001)
    with Certifier(folder / "model.onnx", folder, True, place) as certifier:
        for i in range(3):
            assert certifier.known(str(i), claim_of_image(request, i, {})) == (i < 2)
        certifier.finish()
    assert (certifier.tally.certificates, certifier.tally.checked, certifier.tally.rejected) == (2, 2, {})
