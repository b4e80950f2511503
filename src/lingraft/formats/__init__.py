"""Networks and properties in the formats of others: ONNX in and out, VNN-LIB in and out."""
