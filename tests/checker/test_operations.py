"""Every operation has a rule, and every rule is of the standard."""

import onnx

from lingraft.checker.operations import RULES


def test_every_rule_is_of_the_standard() -> None:
    """Attributes, and the number of inputs and outputs, are those that the onnx package knows of the same set."""
    for operation, rules in RULES.items():
        assert [rule.first for rule in rules[1:]] == [rule.last + 1 for rule in rules[:-1]], operation
        for rule in rules:
            for version in range(rule.first, rule.last + 1):
                schema = onnx.defs.get_schema(operation, version)
                assert not schema.deprecated
                known = {name: str(a.type).split(".")[-1] for name, a in schema.attributes.items()}
                types = {"integer": "INT", "integers": "INTS", "float": "FLOAT", "floats": "FLOATS", "text": "STRING",
                         "tensor": "TENSOR"}  # fmt: skip
                for name, kind in rule.attributes.items():
                    assert known[name] == types[kind], (operation, version, name)
                assert len(rule.inputs.split()) <= schema.max_input
                assert rule.outputs <= schema.max_output
