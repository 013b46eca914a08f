"""`python -m bench.bootstrap [foreground|images ...]`: the bootstrap's seconds, and imports of images at once.

Without a name both are run. Prints a table for each, and one summary line last. Exit 0: within the limits, 1: not,
3: this machine cannot show it.
"""

from __future__ import annotations

import sys

from bench.bootstrap.foreground import LIMIT_S, NoFigures, foreground
from bench.bootstrap.images import LIMIT_RATIO, images

PARTS = ("foreground", "images")


def main(arguments: list[str]) -> int:
    """Run the parts that are named; all of them without a name."""
    wanted = arguments or list(PARTS)
    if unknown := [name for name in wanted if name not in PARTS]:
        print(f"bench.bootstrap: {', '.join(unknown)}: no such part. Hint: {' or '.join(PARTS)}", file=sys.stderr)
        return 2
    summary, good = [], True
    try:
        if "foreground" in wanted:
            nodes = foreground()
            summary.append(f"head {nodes['headnode'].seconds:.1f} s, compute {nodes['compute'].seconds:.1f} s")
            good = all(node.seconds <= LIMIT_S for node in nodes.values())
        if "images" in wanted:
            lines, figures = images()
            print("\n".join([*lines, ""]))
            summary.append(f"{figures['count']:.0f} images {figures['ratio']:.2f}x the largest")
            good = good and figures["ratio"] <= LIMIT_RATIO and figures["seen"] <= figures["allowed"]
    except NoFigures as reason:
        print(f"bench.bootstrap: {reason}", file=sys.stderr)
        return 3
    print("; ".join(summary))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
