"""The uses of lingraft, one function each: what `import lingraft` and the commands both call."""
