#!/usr/bin/env python3
"""Times hops of 8 MiB messages through other runtimes beside ours, in the same run, and prints one table.

    python benches/peers/hops.py [--rounds 2] [--seconds 10] [--json FILE] [--overhead PROGRAM]
        [--copper FOLDER] [--iceoryx2 PROGRAM] [--dora FOLDER --dora-venv VENV]

Ours is `cargo bench --bench overhead`, or the program that it built. The others are small programs that move messages
from a source through a relay to a sink and print a line of percentiles, each taken part only where it is named:

- copper (cu29): FOLDER holds the programs `small` and `big`, which print `copper ...: n=.. p50=..ns p99=..ns p99.9=..ns`.
  Three tasks on one thread; only handles move.
- iceoryx2: PROGRAM BYTES COUNT [fill] prints `iceoryx2 ...: n=.. p50=..us p99=..us p99.9=..us`. Ping-pong between two
  threads, half of a round trip; the receiver spins. With `fill` the payload is written each time.
- dora: FOLDER holds the Python nodes src.py (environment SIZE, N, GAP), relay.py and sink.py, which prints
  `RESULT size=.. n=.. p50=..us p99=..us ... rate=..`; VENV is a virtual environment with dora-rs and dora-rs-cli. Three
  processes, two hops, halved here; the payload is written and copied. Once with dora's own pool of shared memory, once
  with 256 MiB (DORA_NODE_SHM_POOL_SIZE).

Rounds alternate between all of them, so that a busy machine slows each; the best p50 of all rounds counts, with the p99
of that round. What a hop does differs between them, as the lines say: read the table with them.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BYTES = 8 << 20
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3}
NUMBER = r"=([\d.]+)\s*(ns|us|ms)"


def told(command, timeout, **options):
    """What a program prints; its errors go with it, for some runtimes print there."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False, **options
    )
    return done.stdout


def percentiles(line, hops=1):
    """p50 and p99 of a hop in microseconds, the number of samples and the rate, from a line of text."""
    value = lambda name: (found := re.search(re.escape(name) + NUMBER, line)) and float(found[1]) * UNITS[found[2]] / hops
    count = re.search(r"\bn=(\d+)", line)
    rate = re.search(r"rate=([\d.]+)", line)
    if value("p50") is None or value("p99") is None or not count:
        raise ValueError(f"no percentiles in {line!r}")
    return {"p50_us": value("p50"), "p99_us": value("p99"), "n": int(count[1]), "per_second": rate and float(rate[1])}


def line_with(text, word):
    for line in text.splitlines():
        if word in line:
            return line
    raise ValueError(f"no line with {word!r} in:\n{text[-2000:]}")


def ours(arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "overhead.json"
        options = ["--seconds", str(arguments.seconds), "--json", str(out)]
        command = (
            [str(arguments.overhead), *options]
            if arguments.overhead
            else ["cargo", "bench", "--quiet", "--bench", "overhead", "--", *options]
        )
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(out.read_text())["rows"]
    for row in rows:
        hop = row["hop"]
        yield f"ours: {row['what']}", row["rate"], {
            "p50_us": hop["p50_us"], "p99_us": hop["p99_us"], "n": hop["n"], "per_second": row["per_second"],
        }


def copper(folder):
    for name, count in (("small", 200_000), ("big", 20_000)):
        text = told([str(folder / name), str(count)], 300, cwd=folder)
        what = "64 B" if name == "small" else "8 MiB, handle"
        yield f"copper: {what}", "flooded", percentiles(line_with(text, "copper"))


def iceoryx2(program):
    for fill in (False, True):
        command = [str(program), str(BYTES), "1000" if fill else "20000", *(["fill"] if fill else [])]
        what = "written" if fill else "handle"
        yield f"iceoryx2: 8 MiB, {what}", "ping-pong", percentiles(line_with(told(command, 300), "iceoryx2"))


def dora(folder, venv, seconds):
    rates = {"10 Hz": 10, "30 Hz": 30, "100 Hz": 100, "flooded": None}
    for pool in (None, 256 << 20):
        for rate, hertz in rates.items():
            gap = 1 / hertz if hertz else 0
            count = int(hertz * seconds) if hertz else 300
            # The nodes that the flow names lie beside it.
            with tempfile.TemporaryDirectory() as place:
                flow = pathlib.Path(place) / "flow.yml"
                node = lambda name, rest: f"  - id: {name}\n    path: {folder / (name + '.py')}\n{rest}"
                source = lambda sender: f"    inputs: {{in: {{source: {sender}/out, queue_size: 1000}}}}\n"
                env = f'    env: {{SIZE: "{BYTES}", N: "{count}", GAP: "{gap}"}}\n    outputs: [out]\n'
                flow.write_text(
                    "nodes:\n"
                    + node("src", env)
                    + node("relay", source("src") + "    outputs: [out]\n")
                    + node("sink", source("relay"))
                )
                env = {**os.environ, "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"}
                if pool:
                    env["DORA_NODE_SHM_POOL_SIZE"] = str(pool)
                text = told([str(venv / "bin/dora"), "run", str(flow)], 300, cwd=place, env=env)
            what = "pool of 256 MiB" if pool else "its own pool"
            yield f"dora (Python): 8 MiB, {what}", rate, percentiles(line_with(text, "RESULT"), hops=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=pathlib.Path)
    for name in ("overhead", "copper", "iceoryx2", "dora", "dora-venv"):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).absolute())
    arguments = parser.parse_args()
    if (arguments.dora is None) != (arguments.dora_venv is None):
        parser.error("--dora and --dora-venv belong together")
    best, failed = {}, []
    for number in range(arguments.rounds):
        parts = [ours(arguments)]
        if arguments.copper:
            parts.append(copper(arguments.copper))
        if arguments.iceoryx2:
            parts.append(iceoryx2(arguments.iceoryx2))
        if arguments.dora:
            parts.append(dora(arguments.dora, arguments.dora_venv, arguments.seconds))
        for part in parts:
            try:
                for what, rate, measured in part:
                    known = best.get((what, rate))
                    if known is None or measured["p50_us"] < known["p50_us"]:
                        best[what, rate] = measured
            except (ValueError, OSError, subprocess.SubprocessError) as error:
                failed.append(f"round {number + 1}: {error}")
    print(f"{'microseconds a hop':<46}{'rate':>10}{'n':>9}{'p50':>12}{'p99':>12}{'a second':>12}")
    for (what, rate), measured in best.items():
        per_second = measured["per_second"]
        print(
            f"{what:<46}{rate:>10}{measured['n']:>9}{measured['p50_us']:>12.2f}{measured['p99_us']:>12.2f}"
            f"{'' if per_second is None else format(per_second, '.0f'):>12}"
        )
    for error in failed:
        print(f"failed: {error}", file=sys.stderr)
    if arguments.json:
        rows = [{"what": what, "rate": rate, **measured} for (what, rate), measured in best.items()]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
