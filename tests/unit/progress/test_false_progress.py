"""Lines that look like progress and are none, and counts that say less than they seem to."""

import pytest

from headway.progress.parser import LogParser

Place = tuple[int | None, float | None, int | None]


def places(log: str) -> list[Place]:
    parser = LogParser()
    points = parser.feed(log.encode(), 0.0) + parser.finish(0.0)
    return [(p.iteration, p.epoch, p.total) for p in points]


def bar(text: str, done: int, total: int) -> str:
    return f"{text}{done * 100 // total:3}%|##   | {done}/{total} [00:46<02:44,  3.79it/s]\n"


@pytest.mark.parametrize(
    "log",
    [
        "Namespace(lr=0.1, epochs=90, step=30)\n",
        "args: Namespace(arch='resnet18', epoch=90, step=30, loss=0.5)\n",
        "epochs=90 lr=0.1 step=30 gamma=0.1\n",
        "{'epoch': 90, 'step': 30, 'lr': 0.1, 'batch_size': 32, 'seed': 1}\n",
        "engine/trainer: task=detect, epochs=1, patience=50, batch=1, seed=0, step=30, lr0=0.01\n",
        "100%|##| 97.8M/97.8M [00:01<00:00, 60.1MB/s]\n",
        " 45%|##| 44.0M/97.8M [00:01<00:01, 30.1MB/s]\n",
        " 45%|##| 44.0M/97.8M [00:01<00:01, 30.1M/s]\n",
        " 45%|##| 614/1200 [00:00<00:00, 1.45kB/s]\n",
        "Map:  45%|##  | 4500/10000 [00:10<00:12, 450.00 examples/s]\n",
        " 45%|##  | 4500/10000 [00:10<00:12, 450.00 examples/s]\n",
        "Loading checkpoint shards:  50%|##  | 1/2 [00:05<00:05, 5.0s/it]\n",
        "Validating\nf1: 0.5, loss: 0.2 ||:  50%|##  | 50/100 [00:10<00:10, 5.0it/s]\n",
        "***** Running Evaluation *****\n" + bar("", 1, 9) + bar("", 9, 9),
        "   ━━━━━━━━━━━━╸━━━━━━ 45.0/97.8 MB 5.4 MB/s eta 0:00:10\n",
        "   ━━━━━━━━━━━━╸━━━━━━ 45/97 kB 5.4 MB/s eta 0:00:10\n",
        "Downloading ━━━━━━╸━━━ 45% 0:00:10\n",
        "Working ━━━━━━━━━━━━━━ 100% 0:00:10\n",
        "Episode guide: 10\nEpoch Loss: see below\n3 4\n",
        "Sanity Checking DataLoader 0:  50%|##  | 1/2 [00:00<00:00, 5.0it/s]\n",
        "100%|##| 3/3 [00:02<00:00, 1.05it/s]\n",
        "21it [00:00, 14987.30it/s]\n",
        "eval epoch: 2, loss: 6.1, accuracy: 0.5\n",
        "DEBUG CV Batch 78/20 loss 0.157 acc 99.0 history loss 0.18\n",
        "epochs: 90\nstep: 30\n",
        "2026-01-01 10:00:00,123 step 1: downloading\n",
    ],
)
def test_it_is_no_progress(log: str) -> None:
    assert places(log) == []


def test_a_bar_of_the_run_among_lines_of_epochs() -> None:
    log = "".join(
        f"epoch {epoch}/50\n" + bar("steps: ", 16 * epoch, 800) for epoch in range(11, 14)
    )
    # The first may be the run's or the epoch's; the next goes on, so it is the run's.
    assert places(log)[-1] == (208, 12.0, 800)
    assert {place[0] for place in places(log)} <= {None, 192, 208}


def test_a_bar_drawn_before_the_first_epoch_is_the_runs() -> None:
    log = bar("steps: ", 0, 3900) + "\nepoch 1/10\n" + bar("steps: ", 37, 3900)
    assert places(log)[-1] == (37, 0.0, 3900)


def test_a_bar_that_begins_again_is_the_epochs() -> None:
    log = "".join(
        f"Epoch {epoch}/3\n" + "".join(bar("", i, 100) for i in (0, 50, 100)) for epoch in (1, 2)
    )
    assert places(log)[-1] == (200, 2.0, 300)


def test_a_shorter_bar_of_the_same_time_is_no_epoch() -> None:
    def run(total: int) -> str:
        return "".join(bar("", total * part // 4, total) for part in range(5))

    said = places((run(320) + run(100)) * 3)
    assert {iteration % 80 for iteration, _, _ in said if iteration} == {0}
    assert said[-1] == (960, 3.0, None)


def test_a_bar_first_seen_full_that_begins_again_is_no_run() -> None:
    assert not places((bar("", 321, 321) + bar("", 103, 103) + bar("", 0, 321)) * 3)


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 0, global step 450: 'val_loss' reached 0.52 (best 0.52), saving model to 'x'\n",
        "Epoch 00000: val_loss reached 0.52 (best 0.52), saving model to x as top 1\n",
        "Metric val_loss improved. New best score: 0.52\n",
    ],
)
def test_a_checkpoint_does_not_end_the_epoch(line: str) -> None:
    log = "Epoch 0:  45%|##  | 450/1000 [00:10<00:12, 9it/s, v_num=1, loss=0.5]\n" + line
    assert {place[:2] for place in places(log)} == {(450, 0.45)}


def test_the_second_number_of_a_batch_may_be_the_one_that_rises() -> None:
    log = "".join(f"TRAIN Batch 0/{step} loss 9.5 lr 0.1 rank 0\n" for step in (0, 100, 200))
    assert places(log) == [(100, 0.0, None), (200, 0.0, None)]
    log = "".join(f"TRAIN Batch {step}/900 loss 9.5 lr 0.1 rank 0\n" for step in (0, 100, 200))
    assert places(log) == [(100, None, 900), (200, None, 900)]


def test_steps_of_a_later_epoch_alone_are_no_iterations() -> None:
    log = "".join(f"5epoch:train:{step}-{step + 99}batch: loss=1.7\n" for step in (1, 101, 201))
    assert {place[0] for place in places(log)} == {None}
    log += "6epoch:train:1-100batch: loss=1.6\n"
    assert places(log)[-1] == (1600, 5.0, None)


@pytest.mark.parametrize(
    ("log", "place"),
    [
        ("DLL 2020-11-27 18:43:57.213094 - (0, 12) loss : 3.5 \n", (12, 0.0, None)),
        ('DLLL {"type": "LOG", "step": [0, 12], "data": {"loss": 3.5}}\n', (12, 0.0, None)),
        ("[2017-02-12] Ep. 1 : Up. 1,000 : Sen. 12,800 : Cost 238.80\n", (1000, 0.0, None)),
        (" 15: 825.548706, 680.210022 avg loss, 0.001 rate, 10.08 seconds, 960 images\n",
         (15, None, None)),
        ("Training for 25000 kimg...\ntick 14    kimg 70.1     time 1h 38m 21s\n",
         (70, None, 25000)),
        ("10\timages/sec: 139.6 +/- 0.1 (jitter = 0.3)\t8.137\n", (10, None, None)),
        ("| time/              |       |\n|    total_timesteps | 3584  |\n", (3584, None, None)),
        ("  timesteps_total: 20000\n  training_iteration: 20\n", (20, None, None)),
        ("AutoML progress: |███████      |  18%\n", (18, None, 100)),
        ("[12/100] loss=0.3145, val_loss=0.41\n", (12, None, 100)),
        ("2026-11-28 00:15:01,123 - INFO - ( 12/100): train_loss 0.31, lr 0.1\n", (12, None, 100)),
        ("".join(f" {n % 50 + 1}/50 | Acc: 0.9\n" for n in range(75)), (75, 1.5, None)),
        ("99 680.91\n199 463.14\n", (199, None, None)),
        ("i=10, loss=0.5\ni=20, loss=0.4\n", (20, None, None)),
        ("Generation 3/50: best fitness 0.4\n", (3, None, 50)),
        ("5 [D loss: 0.54, acc.: 83.1%] [G loss: 0.84]\n6 [D loss: 0.5]\n", (6, None, None)),
        ("# of episode :20, avg score : 0.8\n", (20, None, None)),
        ("Updates 10, num timesteps 6400, FPS 100 \n Last 10 episodes: 1\n", (10, None, None)),
        ("Iter: 0\nD loss: 0.5\nIter: 1000\nD loss: 0.4\n", (1000, None, None)),
        ("Ep: 6 0.78 | R: 0 | Explore: 0.66\n", (6, None, None)),
        ("Iter-3; D_loss: 0.5\nIter-6; D_loss: 0.4\n", (6, None, None)),
        ("\titers: 100, epoch: 1 | loss: 0.2\n", (100, 0.0, None)),
        ("Training loss (for one batch) at step 100: 0.9\n", (100, None, None)),
        ("Cost after epoch 0: 0.69\nCost after epoch 100: 0.5\n", (None, 101.0, None)),
        ("Epoch 1/5 done in 2.5s\nEpoch 2/5 done in 2.4s\n", (None, 2.0, 5)),
        ("E    #    LOSS NER  SCORE\n---  ---  ------  -----\n  0   200    35.70   0.83\n",
         (200, 0.0, None)),
    ],
)  # fmt: skip
def test_counts_spelled_otherwise(log: str, place: Place) -> None:
    assert places(log)[-1] == place


@pytest.mark.parametrize(
    "line",
    [
        "[1/120] Building CXX object loss.o", "[2/3] Installing torch 2.1", "[0/8] rank 0 loss=0.3",
        "[3/5] val_loss=0.3", "[3/10] test acc 0.9", "11/28 12:30:00 loss", "(1/5) fold: acc 0.9",
        "[1/5] transferred 30 files", "[1/8] Accelerator 2 ready", "[1/3] c++ -MMD lossfn_v2.o.d",
        "3/4 of the files were read", "[2/8] epoch 3: loss 0.5",
    ],
)  # fmt: skip
def test_a_fraction_alone_may_count_anything(line: str) -> None:
    assert all(total is None for *_, total in places(f"{line}\n"))


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 2/5: 10% completed", "Epoch 2/5: 100 of 5000 batches completed",
        "Epoch 2/5: loading took 3.2 s", "Epoch 2/5 - not yet finished",
        "Epoch 2/5 started, shuffling done",
    ],
)  # fmt: skip
def test_a_share_of_an_epoch_that_is_done_is_no_end_of_it(line: str) -> None:
    assert places(f"Epoch 1/5\n{line}\n")[-1] == (None, 1.0, 5)


def test_what_there_will_be_and_what_was_before_is_no_count_of_this_run() -> None:
    assert places("Episodes: 500\nEpisode 1 reward 2\n") == [(1, None, None)]
    log = "Pretrained accuracy at epoch 90: 0.81\nEpoch 1/4 loss 0.5\nEpoch 2/4 loss 0.4\n"
    assert places(log)[-1] == (None, 2.0, 4)
    log = "".join(
        f"Epoch {epoch}/4 loss 0.4\n" + "".join(f"test loss for batch {b}: 0.5\n" for b in range(5))
        for epoch in (1, 2, 3)
    )
    assert places(log)[-1] == (None, 3.0, 4)


def test_what_hardly_says_what_it_counts_gives_way_to_what_does() -> None:
    """The weights of three classes are no progress of the training that prints them."""
    weights = "0 0.52\n1 0.48\n2 0.30\n"
    assert places(weights + "Epoch 1/4 loss 0.5\nEpoch 2/4 loss 0.4\n" + weights)[-1] == (
        None, 2.0, 4,
    )  # fmt: skip


def test_thousands_are_one_number() -> None:
    (point,) = LogParser().feed(b"step: 1,200  loss: 6.1  tps: 5,856\n", 0.0)
    assert point.iteration == 1200
    assert dict(point.metrics) == {"loss": 6.1, "tps": 5856.0}


def test_the_only_trial_of_a_table_counts() -> None:
    heading = "Trial name    status      iter    total time (s)     ts\n"
    one, two = "PPO_1   RUNNING        3    30.30  46550\n", "PPO_2  RUNNING    1   10.1   15850\n"
    assert places(heading + one + "\n\n+---+\n") == [(3, None, None)]
    assert places(heading + one + two + "+---+\n") == []


def test_a_metric_of_the_test_beside_a_bar_makes_it_no_bar_of_a_test() -> None:
    """As PyG's explainer prints it: what comes after its training is no part of an epoch."""
    log = bar("", 0, 2000) + bar("Loss: 1.82, Train: 0.42, Test: 0.41: ", 200, 2000)
    assert places(log)[-1] == (200, None, 2000)
    assert places(bar("", 0, 2000) + bar("Test: ", 20, 200)) == [(0, None, 2000)]


def test_a_bar_of_lightning_without_a_length_names_its_epoch_and_step() -> None:
    log = "GPU available: False, used: False\n" + "".join(
        f"Epoch {epoch}: |          | {step}/? [00:00<00:00, 71.20it/s, v_num=0]\n"
        for epoch in range(3)
        for step in (0, 1, 1, 2, 3, 4, 5, 0)
    )
    assert places(log)[-1] == (15, 2.8, None)


@pytest.mark.parametrize(
    "line", ["Episode 10\tLast reward: 2.0", "Trial 3 finished with value: 1.5"]
)
def test_what_is_counted_otherwise_has_not_the_total_of_the_jobs_steps(line: str) -> None:
    (point,) = LogParser(iterations=500_000).feed(f"{line}\n".encode(), 1.0)
    assert point.total is None


def test_episodes_have_the_total_that_the_job_says_of_episodes_at_most() -> None:
    """A game is over where it is solved; ``--max-episodes`` is how often it is tried."""
    parser = LogParser(iterations=500_000, episodes=1000)
    (point,) = parser.feed(b"Episode 10\tLast reward: 2.0\n", 1.0)
    assert (point.iteration, point.total, parser.may_end_early) == (10, 1000, True)
    (trial,) = LogParser(episodes=1000).feed(b"Trial 3 finished with value: 1.5\n", 1.0)
    assert trial.total is None


def test_a_fold_among_printed_settings_is_no_fold_under_way() -> None:
    parser = LogParser()
    parser.feed(b"Namespace(fold=0, lr=0.1)\n", 0.0)
    (point,) = parser.feed(b"step 10/1000 loss: 2.5\n", 1.0)
    assert point.total == 1000
