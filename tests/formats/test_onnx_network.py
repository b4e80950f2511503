"""Networks of ONNX files, and values inside of them as outputs: what onnxruntime says."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from lingraft import LingraftError
from lingraft.formats.onnx_export import export_onnx
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.work.checking import check
from lingraft.work.properties import verify_property
from lingraft.work.vnncomp.instance import Instance


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three inputs in the shape (1, 3), to five values, to two outputs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    export_onnx(model.eval(), tmp_path / "f.onnx", input_shape=(1, 3))
    return tmp_path / "f.onnx"


def test_flat_inputs_and_outputs(file):
    network = OnnxNetwork(file)
    assert (network.inputs, network.outputs, network.input_shape, network.name) == (3, 2, (1, 3), str(file))
    x = np.array([0.5, -1, 0.25], np.float32)
    ours = network.verifier(double=True).network.forward(torch.from_numpy(x).double().view(1, 1, 3))
    np.testing.assert_allclose(ours[0].numpy(), network.run(x), atol=1e-6)
    doubled = network.verifier(True, nn.Linear(2, 1, dtype=torch.float64)).network
    assert doubled.forward(torch.zeros(1, 1, 3).double()).shape == (1, 1), "with a layer behind it"


def test_a_value_inside_is_an_output(file):
    inside = [node.output[0] for node in onnx.load(file).graph.node if node.op_type == "Relu"]
    hidden = OnnxNetwork(file, output=inside[0])
    assert hidden.outputs == 5
    model = onnx.load(file)
    model.graph.output.append(onnx.helper.make_tensor_value_info(inside[0], onnx.TensorProto.FLOAT, [None, 5]))
    x = np.array([0.5, -1, 0.25], np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: x.reshape(1, 1, 3)}
    assert np.array_equal(hidden.run(x), session.run([inside[0]], feeds)[0].ravel())
    onnx.save(model, file)
    assert np.array_equal(OnnxNetwork(file, output=1).run(x), hidden.run(x)), "now the second output"
    for output, message in (("nothing", "with the name 'nothing'"), (2, "about output 3, but the network has 2")):
        with pytest.raises(LingraftError, match=message):
            OnnxNetwork(file, output=output)


def about(path: Path, name: str) -> Path:
    """That the first of two values of that name is above 3 for all inputs between 0 and 1."""
    path.write_text(
        "(vnnlib-version <2.0>)\n"
        f'(declare-network f (declare-input X real [1,1,3]) (declare-output Y real [1,2] "{name}"))\n'
        + "".join(f"(assert (and (<= X[0,0,{i}] 1) (>= X[0,0,{i}] 0)))\n" for i in range(3))
        + "(assert (<= Y[0,0] 3))\n"
    )
    return path


def test_certificates_are_about_the_only_output_of_a_file(tmp_path):
    """The checker reads the whole file, so claims about a value inside are no claims of the same numbers about it."""
    file = tmp_path / "f.onnx"
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        model[3].weight.copy_(torch.eye(2))
        model[3].bias.fill_(5.0)
    export_onnx(model.eval(), file, input_shape=(1, 3))
    (inside,) = (node.output[0] for node in onnx.load(file).graph.node if node.op_type == "Relu")
    output = onnx.load(file).graph.output[0].name
    assert (OnnxNetwork(file, output=inside).whole, OnnxNetwork(file, output=output).whole) == (False, True)
    true, false = about(tmp_path / "true.vnnlib", output), about(tmp_path / "false.vnnlib", inside)
    proven = verify_property(file, true, certificates=tmp_path / "certificates", progress=False)
    assert (proven.answer.word, proven.certificates.certificates) == ("unsat", 1)
    assert verify_property(file, false, progress=False).answer.word == "sat"
    with pytest.raises(LingraftError, match="the only output of its file"):
        verify_property(file, false, check=True, progress=False)
    assert check(tmp_path / "certificates", model=file, vnnlib=true)
    with pytest.raises(LingraftError, match=r"the property is about .* but the output of the network is"):
        check(tmp_path / "certificates", model=file, vnnlib=false)
    assert Instance.read(OnnxNetwork(file), true).property.boxes
    with pytest.raises(LingraftError, match="the property is about"):
        Instance.read(OnnxNetwork(file), false)
    other = tmp_path / "other.vnnlib"
    other.write_text(true.read_text().replace("[1,1,3])", '[1,1,3] "elsewhere")'))
    with pytest.raises(LingraftError, match="the property is about 'elsewhere', but the input"):
        check(tmp_path / "certificates", model=file, vnnlib=other)
    with pytest.raises(LingraftError, match="no input 'elsewhere'"):
        verify_property(file, other, progress=False)
