"""Hold the models' times of products against those that others published on GPUs that this project never had.

    python -m benchmarks.elsewhere                 # the table: predicted over published time
    python -m benchmarks.elsewhere --write         # the same into the docs, the picture and the package
    python -m benchmarks.elsewhere short           # what is short of its band, and what limits it
    python -m benchmarks.elsewhere experts         # experts' configurations: in the space, at which price
    python -m benchmarks.elsewhere library         # writes the shipped tables of libraries, and says their error
    python -m benchmarks.elsewhere peers           # Origami and nvMatmulHeuristics beside the models of this package

The data stand in `data/`, with their sources and licences. Half of all shapes, drawn by a hash, may be used in fits;
the other half judges, and is what the table shows unless `--half` says otherwise.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.elsewhere import experts, library, peers, short, written
from benchmarks.elsewhere.data import FITTED, JUDGING
from benchmarks.elsewhere.judge import judged, table_lines
from benchmarks.elsewhere.picture import draw

BOTH = "both"


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elsewhere", description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", default="judge", choices=["judge", "short", "experts", "library", "peers"])
    parser.add_argument(
        "--gpu", action="append", default=[], help="a GPU as the data name it (a100, mi355x); repeat it"
    )
    parser.add_argument("--half", choices=[JUDGING, FITTED, BOTH], default=JUDGING, help="the shapes that are judged")
    parser.add_argument("--sample", action="store_true", help="a sample of the shapes, which takes a tenth of the time")
    parser.add_argument("--picture", type=Path, help="draw the picture into this PNG file (needs matplotlib)")
    parser.add_argument("--write", action="store_true", help="write docs, picture and the held-against file")
    parser.add_argument("--peers", type=Path, default=None, help="a Python that has the peers' packages installed")
    args = parser.parse_args()
    if args.write and (args.gpu or args.sample or args.half != JUDGING):
        parser.error("--write states figures of all GPUs on the judging half: leave the other options out")
    if args.part == "library":
        library.write_tables()
        lines = list(library.table_lines())
        print("\n".join(lines))
        if args.write:
            written.fill(written.PAGE, "libraries", lines)
    elif args.part == "experts":
        print("\n".join(experts.table_lines(list(experts.priced()))))
    elif args.part == "peers":
        peers.main(args.peers, args.gpu, write=args.write)
    else:
        _judge(args)


def _judge(args: argparse.Namespace) -> None:
    halves = (JUDGING, FITTED) if args.half == BOTH else (args.half,)
    rows = list(judged(args.gpu, halves=halves, all_of_them=not args.sample))
    print("\n".join(short.lines(rows) if args.part == "short" else table_lines(rows)))
    if args.picture:
        draw(rows, args.picture)
    if args.write:
        date = written.today()
        written.write_held(rows, date)
        draw(rows, written.PICTURE)
        dated = f"Judged on {date}: {len(rows):,} products."
        written.fill(written.PAGE, "figures", [dated, "", *table_lines(rows)])
        written.fill(written.PAGE, "short", short.lines(rows))
        written.fill(written.PAGE, "experts", experts.table_lines(list(experts.priced())))
        written.fill(written.FIGURES, "elsewhere", written.short_lines(rows))


if __name__ == "__main__":
    main()
