"""What is around a model is taken off; what is no model is refused with what to do."""

import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.model.plain import copied, plain
from lingraft.solver.network import Network


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x) + y


@pytest.mark.parametrize(
    "wrap", [nn.DataParallel, pytest.param(lambda model: torch.compile(nn.DataParallel(model)), marks=pytest.mark.slow)]
)
def test_the_module_inside_is_taken(wrap, tmp_path) -> None:
    inside = net()
    wrapped = wrap(inside).eval()
    assert plain(wrapped) is inside
    assert [site.name for site in lingraft.sites(wrapped, (4,))] == ["1"]
    images = torch.rand(2, 4)
    found = lingraft.verify(wrapped, images, inside(images).argmax(1), eps=0.001, workers=0)
    assert [result.verdict for result in found] == ["verified", "verified"]
    lingraft.export_onnx(wrapped, tmp_path / "net.onnx", input_shape=(4,))
    assert lingraft.graft(wrapped, {"1": torch.ones(8, dtype=torch.bool)})(images).shape == (2, 3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ReLU, r"ReLU is a class.*ReLU\("),
        (lambda x: x, "nn.Module, not function"),
        (torch.jit.trace(net(), torch.rand(1, 4)), "torch.jit.*load_onnx"),
        (TwoInputs().eval(), "2 inputs.*Wrap"),
        (net().bfloat16(), r"bfloat16.*model\.float\(\)"),
        (net().half(), r"float16.*model\.float\(\)"),
    ],
)
def test_what_is_no_model_that_can_be_verified_is_refused(model, message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        Network.from_module(model, (4,))


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_model_whose_weights_are_computed_can_be_copied_and_grafted(norm) -> None:
    model = nn.Sequential(norm(nn.Linear(4, 8)), nn.ReLU(), norm(nn.Linear(8, 3)))
    model(torch.rand(5, 4)).sum().backward()  # after which copy.deepcopy fails
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = torch.rand(5, 4)
    other = copied(model).eval()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    torch.testing.assert_close(other(images), model.eval()(images))
    grafted = lingraft.graft(model, {"1": torch.zeros(8, dtype=torch.bool)}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)  # what the copies must not see, and what the weights are computed from
        torch.testing.assert_close(grafted(images), other(images))
        converted = Network.from_module(model, (4,)).forward(images.double()).float()
        torch.testing.assert_close(converted, model(images))
