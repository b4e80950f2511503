"""Training shared by several processes, on one machine or many: each has a part of every batch.

`torchrun` starts the processes and says in the environment who is who. The process of rank 0 leads: it alone validates,
prints and has the run folder. The others follow, with a temporary folder in its place. The weights are the same
everywhere at every moment. One step is that of a single process with the whole batch, up to rounding, for a loss that
is a mean over the images: the order, the crops and the noise are drawn for the whole batch by each process, which then
takes its part, and gradients are averaged with the sizes of the parts as weights.

Gradients are averaged here and not by torch's DistributedDataParallel, whose hooks know only the plain backward pass:
the losses differentiate input gradients, and several times in one step. Batch norm uses the statistics of the part.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lingraft.attack.batch_noise import part_of_batch
from lingraft.errors import LingraftError
from lingraft.runs import Run
from lingraft.training.loss import Figures

#: Processes wait for each other while the leader validates, or while followers score neurons that it has the scores of.
PATIENCE = timedelta(days=1)


@contextmanager
def joined(device: torch.device) -> Iterator[tuple[torch.device, Path | None]]:
    """Under torchrun, join the other processes; gives the device of this one, and a folder for what followers write.

    Where they are joined already, they stay so.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device, None
        return
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    ours = not dist.is_initialized()
    if ours:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        if leads():
            yield device, None
        else:
            with tempfile.TemporaryDirectory(prefix="lingraft-") as folder:
                yield device, Path(folder) / "run"
    finally:
        if ours:
            dist.destroy_process_group()


def leads() -> bool:
    """Whether this process is the one that validates, prints and writes: rank 0, or the only one."""
    return not dist.is_initialized() or dist.get_rank() == 0


def mirror(run: Run, device: torch.device) -> None:
    """Copy what the leader goes on from into the run folders of the followers."""
    if not dist.is_initialized():
        return
    for path in (run.checkpoint_path, run.weights_path):
        content = path.read_bytes() if leads() and path.exists() else b""
        size = torch.tensor([len(content)], device=device)
        dist.broadcast(size, 0)
        data = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(device) if content else None
        data = torch.empty(int(size), dtype=torch.uint8, device=device) if data is None else data
        dist.broadcast(data, 0)
        if not leads() and len(data):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.cpu().numpy().tobytes())


@torch.no_grad()
def align(model: nn.Module) -> None:
    """Give every process the parameters and buffers of the leader, to the bit; masks must be the same already."""
    if not dist.is_initialized():
        return
    for tensor in [*model.parameters(), *model.buffers()]:
        theirs = tensor.detach().clone()
        dist.broadcast(theirs, 0)
        if tensor.is_floating_point():
            tensor.copy_(theirs)
        elif not torch.equal(tensor, theirs):
            raise LingraftError("the processes did not choose the same neurons. Choose them first: lingraft select.")


def from_leader(figures: Sequence[float | None] | None, count: int, device: torch.device) -> list[float | None]:
    """The leader's figures on every process; those of the others are not looked at."""
    values = [float("nan") if figure is None else figure for figure in figures or [None] * count]
    if not dist.is_initialized():
        return list(figures or [])
    shared = torch.tensor(values, dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    return [None if value != value else value for value in shared.tolist()]


@dataclass(frozen=True)
class Part:
    """What this process has of a batch; `weight` is its share of the images."""

    images: Tensor
    labels: Tensor
    weight: float

    def mean(self, value: Tensor, figures: Figures) -> tuple[float, Figures]:
        """The loss and its figures for the whole batch, from those of the parts."""
        if not dist.is_initialized():
            return value.item(), figures
        names = sorted(figures)
        numbers = torch.stack([value.detach().double(), *[figures[name].double() for name in names]]) * self.weight
        dist.all_reduce(numbers)
        return numbers[0].item(), dict(zip(names, numbers[1:], strict=True))

    @torch.no_grad()
    def average_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace gradients by those of the whole batch."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not dist.is_initialized() or not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients]).mul_(self.weight)
        dist.all_reduce(flat)
        for gradient, whole in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(whole.view_as(gradient))


@contextmanager
def part_of(images: Tensor, labels: Tensor) -> Iterator[Part]:
    """This process's part of a batch, all of it where there is only one; inside, noise is drawn accordingly.

    A process for which there is no image gets the first one, with weight 0: it must take part in everything.
    """
    if not dist.is_initialized():
        yield Part(images, labels, 1.0)
        return
    total, rank, size = len(images), dist.get_rank(), dist.get_world_size()
    first, last = total * rank // size, total * (rank + 1) // size
    weight = (last - first) / total
    if first == last:
        first, last = 0, 1
    with part_of_batch(first, total):
        yield Part(images[first:last], labels[first:last], weight)
