"""How fast the log parser is, on real-looking and on hostile lines.

    PYTHONPATH=. python benchmarks/progress_parser.py [--lines 1000000] [--hostile 10000000]

The first table reads long logs made from those of tests/data/progress (see
progress_logs.py: counts rise and other numbers change, so that nearly every line of
the training is news), and those of public threads again and again, as 64 KiB pieces on
one core. The second feeds hostile lines one
by one, and prints the median and the worst time of a line and how much the process
grew. All times are CPU times of this process, and a speed is that of the fastest of
three passes, each with a fresh parser, so that other load on the machine changes it
little; the lines without a point are those of validations, of other ranks, and
what a program says besides.
"""

import argparse
import gc
import random
import resource
import statistics
import time
from functools import partial
from pathlib import Path

from benchmarks.progress_logs import moving
from headway.progress.parser import LogParser

LOGS = Path(__file__).parent.parent / "tests" / "data" / "progress"
PIECE_BYTES = 1 << 16
PASSES = 3


def moved_on(fixture: Path, lines: int) -> bytes:
    """A log of *lines* lines like those of *fixture*."""
    return moving(fixture.read_bytes(), lines, random.Random(7))


def repeated(excerpt: Path, lines: int) -> bytes:
    """*excerpt*, of a public thread, again and again."""
    log = excerpt.read_bytes()
    return log * (lines // (log.count(b"\n") + 1) + 1)


def speed(data: bytes) -> tuple[float, int]:
    """Lines a second in the fastest of `PASSES` passes, and points found."""
    return max(_once(data) for _ in range(PASSES))


def _once(data: bytes) -> tuple[float, int]:
    lines = data.count(b"\n") + data.count(b"\r")
    parser, points = LogParser(epochs=10), 0
    gc.collect()
    began_s = time.process_time()
    for start in range(0, len(data), PIECE_BYTES):
        points += len(parser.feed(data[start : start + PIECE_BYTES], 0.0))
    return lines / (time.process_time() - began_s), points


def keras_log(lines: int) -> bytes:
    """A bar that is redrawn for every step."""
    bar = "━" * 20
    out = []
    for i in range(lines):
        epoch, step = divmod(i, 1000)
        if step == 0:
            out.append(f"Epoch {epoch + 1}/{lines // 1000 + 1}\n")
        out.append(
            f"\r\x1b[1m{step + 1:4d}/1000\x1b[0m \x1b[32m{bar}\x1b[0m\x1b[37m\x1b[0m "
            "\x1b[1m3s\x1b[0m "
            f"5ms/step - accuracy: 0.8{step:03d} - loss: 0.6{step:03d}"
        )
    return "".join(out).encode()


def imagenet_log(lines: int) -> bytes:
    """The line of PyTorch's ImageNet example."""
    return "".join(
        f"Epoch: [{i // 5005}][{i % 5005:4d}/5005]\tTime  0.345 ( 0.9)\tData  0.000 ( 0.3)\t"
        f"Loss 6.9{i % 1000:03d}e+00 (7.0e+00)\tAcc@1   0.39 (  0.1)\tAcc@5   1.17 (  0.5)\n"
        for i in range(lines)
    ).encode()


def protocol_log(lines: int) -> bytes:
    """Lines of the protocol."""
    return "".join(
        f'{{"headway": {{"iteration": {i}, "total": {lines}, "metrics": '
        f'{{"loss": 0.{i % 997}}}}}}}\n'
        for i in range(1, lines + 1)
    ).encode()


def words_log(lines: int) -> bytes:
    """Lines that say nothing of progress, between a few that do."""
    return "".join(
        f"2026-01-01 10:00:{i % 60:02d},123 - INFO - loader: read shard {i} of the data set\n"
        if i % 50
        else f'{{"headway": {{"iteration": {i}, "total": {lines}}}}}\n'
        for i in range(lines)
    ).encode()


def hostile(rng: random.Random) -> bytes:
    """One line that means harm."""
    kind = rng.randrange(14)
    n = rng.randrange(1, 10**15)
    noise = rng.randbytes(rng.randrange(120)).replace(b"\n", b"").replace(b"\r", b"")
    return (
        b'{"headway": {"iteration": %d, "total": -1, "metrics": {"loss": NaN}}}' % n,
        b'{"headway": {"iteration": 1e999, "epoch": [[[[', noise,
        b"Epoch %d/%d" % (n % 10**9, n % 7), b" %d/%d [=====>" % (n, n % 100),
        b"%d%%|" % (n % 100) + b"#" * 300 + b"| %d/%d [" % (n, n), b"a" * 200 + b" step = ",
        b"\x1b[" + b"9;" * 60 + b"m" + noise, b"{'loss': " + b"9" * 150, b"DLLL {" + noise,
        b"loss: " * 40, b"Iteration %d, loss = 1e999" % n, b"a:1 " * 60 + b"=" * 60,
        b" " * 150 + b"1" * 50 + b" \t" * 30,
    )[kind]  # fmt: skip


def attack(lines: int) -> None:
    """Feed *lines* hostile lines and print what they cost."""
    rng = random.Random(7)
    pool = [hostile(rng) + b"\n" for _ in range(20_000)]
    parser, points = LogParser(epochs=3), 0
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.process_time()
    took_s = []
    for i in range(lines):
        line = pool[rng.randrange(len(pool))] if i % 1000 else b"x" * 5_000_000
        start_s = time.process_time()
        points += len(parser.feed(line, 0.0))
        if i % 10 == 1:
            took_s.append(time.process_time() - start_s)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    print(
        f"{lines} hostile lines in {time.process_time() - began_s:.0f} s: median "
        f"{statistics.median(took_s) * 1e6:.1f} us, worst {max(took_s) * 1e3:.1f} ms, "
        f"{points} points, grew by {grown_kib / 1024:.0f} MiB"
    )


def main() -> None:
    """Print both tables."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--lines", type=int, default=200_000)
    ask.add_argument("--hostile", type=int, default=1_000_000)
    options = ask.parse_args()
    made = {
        "made: keras": keras_log,
        "made: imagenet": imagenet_log,
        "made: headway": protocol_log,
        "made: words": words_log,
    }
    longer = {p.stem: partial(moved_on, p) for p in sorted(LOGS.glob("*.log"))}
    again = {f"thread {p.stem}": partial(repeated, p) for p in sorted(LOGS.glob("threads/*.log"))}
    for name, make in (made | longer | again).items():
        rate, points = speed(make(options.lines))
        print(f"{name:26}{rate / 1000:8.0f} k lines/s {points:8d} points", flush=True)
    attack(options.hostile)


if __name__ == "__main__":
    main()
