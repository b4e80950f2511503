"""The answers of VNN-COMP, and what `lingraft verify --onnx` ends with for each."""

EXIT_CODES = {"unsat": 0, "sat": 10, "unknown": 11, "timeout": 12}
