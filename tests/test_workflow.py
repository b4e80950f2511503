"""What a push runs is what people run: `make test`, on the oldest Python that is supported, with PyTorch for the CPU."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def test_a_push_runs_make_test():
    # YAML 1.1 reads the key `on` as true
    workflow = {
        str(key): value for key, value in yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text()).items()
    }
    assert set(workflow["True"]) == {"push", "pull_request"}
    steps = workflow["jobs"]["test"]["steps"]
    assert steps[-1]["run"] == "make test"
    oldest = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text()).group(1)
    assert [step["with"]["python-version"] for step in steps if "with" in step] == [oldest]
    (index,) = re.findall(r"--index-url (\S+)", " ".join(step.get("run", "") for step in steps))
    (pin,) = re.findall("^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f"pip install {pin} --index-url {index}" in (ROOT / "README.md").read_text()
