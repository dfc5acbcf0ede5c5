"""Logprobs of a recorded stream as a picture, without a notebook.

Needs: pip install matplotlib, and ssefold itself (in a clone: pip install .)
Run:   python plot_logprobs.py [recorded.sse logprobs.png]
Without a recording it uses a stream of a fake server.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")  # a file, no window
import matplotlib.pyplot as plt

from ssefold import GenerateDecoder
from ssefold.transports.testing import CUMULATIVE, Asked, GreedyModel, encode


def plot(body: bytes, picture: Path) -> None:
    decoder = GenerateDecoder()
    decoder.feed(body)
    decoder.close()
    figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
    for index, output in sorted(decoder.outputs.items()):
        known = [(at, value) for at, value in enumerate(output.logprobs) if value is not None]
        axes.plot(*zip(*known, strict=True), ".", markersize=3, label=f"output {index}, {len(known)} tokens")
    axes.set(xlabel="token", ylabel="logprob")
    axes.legend()
    figure.savefig(picture, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        plot(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]))
    else:
        asked = Asked(rid="r", prompt_ids=(1, 2, 3), max_new_tokens=300, return_logprob=True)
        plot(encode([GreedyModel()(asked)], CUMULATIVE).data, Path("logprobs.png"))
        print("written to logprobs.png")
