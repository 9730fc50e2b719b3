"""The formats that patterns tell: one row for each kind of line. `known_formats` names them.

A pattern is tried on a line in which each digit is a 0.
"""

import re
from functools import partial

from headway.progress.metrics import NUMBER
from headway.progress.rows import Row, Tells
from headway.progress.seen import Counted

# NVIDIA's DeepLearningExamples: "DLL time - Epoch: 0 Iteration: 10 …", or a tuple; "DLLL {JSON}".
_DLL = r"\bDLL [^{]{0,60}?- "
_DLLL = r'\bDLLL \{[^{]{0,300}"step": '
_PARAMETERS = (
    r"PARAMETER(?=(?:.{0,2000}?\b(?:num_|max_|n_)?epochs\"? ?: %epochs%)?)"
    r"(?=(?:.{0,2000}?\b(?:max_steps|max_iter|iterations|(?:num_)?train_steps)\"? ?: %total%)?)"
)
DLLOGGER = (
    Row(_DLL + _PARAMETERS, Tells.SETTING),
    Row(_DLL + r".{0,80}?Validation ", Tells.NOTHING),
    Row(_DLL + r"\(%epoch%(?:, %step%)?,?\)%rest%"),
    Row(_DLL + r".{0,9}Epoch: %epoch%(?:.{1,13}(?:Iteration|Step): %step%)?%rest%"),
    Row(_DLL + r".{0,9}(?:Iteration|Step): %iteration%%rest%"),
    Row(_DLL, Tells.NOTHING),
    Row(_DLLL + '"' + _PARAMETERS, Tells.SETTING),
    Row(_DLLL + r"\[%epoch%(?:, %step%)?\].{0,40}?\{%rest%"),
    Row(_DLLL + r"%iteration%,.{0,40}?\{%rest%"),
    Row(_DLLL, Tells.NOTHING),
)

LIGHTNING = (Row(r"v_num|GPU available: |LOCAL_RANK: |Sanity Checking|`Trainer\.", Tells.NOTHING),)

# The Trainer prints its settings, and dictionaries with numbers.
HUGGING_FACE = (
    Row(r"Num Epochs = %epochs%", Tells.SETTING),
    Row(r"Total optimization steps = %total%", Tells.SETTING),
    Row(
        r"%rest%\{'(?:loss|eval_|train_|epoch|grad_norm|learning_rate)"
        r"(?=(?:.{0,1000}?'step': '?%iteration%)?)(?=.{0,1000}?'epoch': '?%epoch_done%)",
    ),
)

# `Model.fit` with a bar or, for verbose=2, one line for each epoch; the latter without a count
# before Keras 2.3. The metrics stand behind the times, of which "3s" and "5ms/step" are none.
KERAS = (
    # Others print such a line too: only a step that follows makes it Keras.
    Row(r"(?:^|[\s>:])Epoch %epoch%/%epochs%\s*$", Tells.HINT),
    Row(
        r"^\W{0,6}%step%/(?:%steps%|Unknown|None) (?=.{0,120}?"
        r"(?:\[[=>.]|━|[0-9]s\b|(?:us|ms|s)/(?:step|sample|epoch)|ETA:))(?:.*?(?= - )|.*)%rest%",
    ),
    Row(r"^ - [0-9]{1,9}s(?: [0-9]{1,9}[mu]?s/(?:step|sample|epoch))? - \w{1,60}: "),
)

PYTORCH = (
    # DCGAN: [0/25][0/391]	Loss_D: 1.2	Loss_G: 3.4	D(x): 0.5
    Row(r"^\[%epoch%/%epochs%\] ?\[ {0,6}%step%/%steps%\]"),
    # Train Epoch: 1 [640/60000 (1%)] Loss: 2.3 (counts samples); timm and OpenPCDet:
    # Train:    1/3 ( 33%) [  49/323 ( 15%)]  Loss: 36.77
    Row(
        r"Train(?: Epoch)?: {1,8}%epoch%(?:/%epochs%)?(?: \([ 0-9.]{1,6}%\))? {0,2}"
        r"\[ {0,12}%step%/%steps%[^\]]{0,20}\]"
    ),
    # The ImageNet example, torchvision's references, Swin:
    # Epoch: [0][  10/5005]  Loss 6.9e+00 (7.0e+00); Epoch [1/5], Step [100/600], Loss: 0.3
    Row(
        r"(?:Epoch|Train):? {0,2}\[ {0,6}%epoch%(?:/%epochs%)?\],?\s{0,4}(?:Step |Iter |Batch )?"
        r"\[ {0,12}%step% {0,2}/ {0,12}%steps%\]"
    ),
)

# Estimators: loss = 0.3, step = 100; slim: global step 100: loss = …; Step 100 per-step time …
TENSORFLOW = (
    Row(r"\b(?:step|global_step) = %iteration%\b"),
    Row(r"(?:tensorflow:|\] |: )(?:global )?[Ss]tep %iteration%(?:: | per-step|(?=, loss = ))"),
)

# I0714 … solver.cpp:218] Iteration 100 (12.3 iter/s, 8.1s/100 iters), loss = 0.2
CAFFE = (
    Row(r"^max_iter: %total%$", Tells.HINT),
    Row(r"\] Iteration [0-9]{1,15}, Testing net", Tells.NOTHING),
    Row(
        r"\] Iteration %iteration%(?: \((?P<iter_per_s>" + NUMBER + r") iter/s[^)]{0,60}\))?, "
        r"%rest%",
    ),
    Row(r"(?:solver|caffe)\.cpp:", Tells.NOTHING),
)

# Boosting. [12] train-logloss:0.31 eval-auc:0.9
XGBOOST = (Row(r"\[%iteration%\]\s{1,8}(?=[\w.]{1,40}-[\w@.-]{1,40}:[-+0-9n])", from_zero=True),)
# [12] valid_0's auc: 0.9; the command: [LightGBM] [Info] Iteration:12, valid_1 auc : 0.9
_LIGHTGBM_METRIC = re.compile(
    r"([A-Za-z_][\w ]{0,40}'s [\w@]{1,40}|[A-Za-z_]\w{0,40} [\w@]{1,40})\s{0,2}: (" + NUMBER + ")",
    re.ASCII,
)
_LIGHTGBM = partial(Row, metric=_LIGHTGBM_METRIC, space=" ")
LIGHTGBM = (
    _LIGHTGBM(r"(?:^|\s)\[%iteration%\]\s{1,8}(?=[\w ]{1,40}'s |cv_agg)"),
    _LIGHTGBM(r"\[LightGBM\] \[Info\] (?:.{1,40}, finished iteration |Iteration:)%iteration%"),
)
# 12: learn: 0.31 test: 0.33 best: 0.33 (12) total: 1.2s
CATBOOST = (Row(r"^\s{0,8}%iteration%:\s{1,8}(?:learn|test|total): ", from_zero=True),)

# What scikit-learn's estimators, and joblib's tasks, print with verbose.
SCIKIT_LEARN = (
    Row(r"^\[%iteration%/%total%\] [0-9]{1,9} tree"),
    Row(r"^building tree %iteration% of %total%"),
    Row(r"^(?:\[t-SNE\] |\s{0,4})Iteration %iteration%(?:, (?=loss)|: (?=error))"),
    Row(r"^Iteration %iteration%, inertia", from_zero=True),
    # SGD says the epoch in the line before.
    Row(r"^-- Epoch %epoch_done%$", Tells.SETTING),
    Row(r"^Norm: "),
)

# The tasks of joblib, which runs scikit-learn's fits.
TASKS = (
    Row(r"^Fitting [0-9]{1,9} folds? .{0,80}, totalling %total% fits", Tells.SETTING),
    Row(r"^\[Parallel\(n_jobs=[^)]{1,40}\)\]: Done\s{1,6}%iteration% (?:tasks|out of).*%rest%"),
)

# No remark about an earlier training, nor about what is not trained on.
_VALUE_AT = (
    r"^(?!.{0,120}?(?i:best|pretrain|initial|load|restor|\bval|\btest|\beval)).{0,120}?"
    r"\b(?i:loss|cost|error|accuracy|reward|score|elbo)\b[^0-9:=]{0,40}\b(?:at|after|in|for) "
)
_VALUE = r"[\s:=]{1,4}(?P<value>" + NUMBER + r")\s{0,8}$"
# Lines that count without the words that `words` reads.
SPELLED = (
    Row(r"^(?:Training for|Num batches:)\s{1,4}%total%", Tells.HINT),
    # fastText and H2O's bar say percents.
    Row(r"^Progress: {1,4}%iteration%(?:\.[0-9]{1,2})?% {1,4}words/sec", total=100),
    Row(r"^[\w ]{2,60} progress: \|[^|]{0,200}\|\s{0,6}%iteration%(?:\.[0-9])?%", total=100),
    # The Trainer's bar in a notebook; LLaMA-Factory's JSON.
    Row(r"^\[ {0,4}%iteration%/%total% [0-9:]{1,12} < [0-9:?]{1,12}, .{0,40}Epoch %epoch_done%/"),
    Row(r'"current_steps": %iteration%, "total_steps": %total%,'),
    # ESPnet: "5epoch:train:3376-3750batch: …"; Marian: "Ep. 1 : Up. 1000 : Sen. …".
    Row(r"(?<![0-9/])%epoch%epoch:train:(?:[0-9]{1,12}-)?%step%batch"),
    Row(r"\bEp\. %epoch% : Up\. %iteration%"),
    # PyTorch's example of REINFORCE, and many others: "Episode 10	Last reward: 26.00 …"
    Row(r"^\W{0,3}[Ee]pisode\W{1,3}%iteration%(?:/%total%)?\b(?!/)", counted=Counted.EPISODES),
    # "# of episode :20, avg score : 0.8"; "Episodes: 500" alone is how many there will be.
    Row(
        r"^\W{0,3}(?:(?:n_|of )[Ee]pisodes?|[Ee]pisodes)\W{1,3}%iteration%[ ,;|]{1,4}[A-Za-z]",
        counted=Counted.EPISODES,
    ),
    # "Iter: 99" alone, with what it lost in the next lines.
    Row(r"^\W{0,3}[Ii]ter(?:ation)?\W{1,3}%iteration%\W{0,3}$", counted=Counted.OTHERS),
    Row(r"^Updates %iteration%, num timesteps ", counted=Counted.OTHERS),
    # Keras's guide: "Training loss (for one batch) at step 100: 0.9"; "Cost after epoch 3: 0.69".
    Row(_VALUE_AT + r"(?:step|iter(?:ation)?|batch|update)\W{1,3}%step%(?:/%steps%)?" + _VALUE),
    Row(_VALUE_AT + r"epoch\W{1,3}%epoch%(?:/%epochs%)?" + _VALUE),
    # Optuna. Of its parameters none is learnt.
    Row(
        r"\bTrial %iteration% (?:pruned|failed|finished with value: (?P<value>"
        + NUMBER
        + r")?).*%rest%",
        counted=Counted.OTHERS,
        from_zero=True,
    ),
    # Tacotron 2: "Train loss 7 5.79 Grad Norm …"; StyleGAN counts thousands of images.
    Row(r"^Train loss %iteration% [0-9.]{1,20} Grad Norm"),
    Row(r"^tick [0-9]{1,9}\s{1,8}kimg %iteration%(?:\.[0-9])?\s"),
    # Darknet, tf_cnn_benchmarks and llama2.c, tinygrad, nerfstudio begin with the count.
    Row(r"^\s{0,8}%iteration%: -?[0-9.naf]{1,20}, -?[0-9.naf]{1,20} avg\b"),
    Row(r"^\s{0,8}%iteration%(?:\s{1,12}images/sec: | \| loss [0-9n]| [0-9.]{1,12} s run, )"),
    Row(r"^\s{0,8}%iteration% \([0-9.]{1,6}%\)\s{1,20}[0-9.]{1,12} m?s\b"),
    # Stable-Baselines: "| total_timesteps | 3584 |"; RLlib: "training_iteration: 20"; tf2rl.
    Row(r"^[|\s]{0,12}total_timesteps\s{1,20}\|\s{1,10}%iteration%\s{0,20}\|?\s{0,4}$"),
    Row(r"^\s{0,12}(?:training_iteration|iterations_since_restore):\s{1,10}%iteration%\s{0,4}$"),
    Row(r"\bTotal Epi: {1,6}[0-9]{1,12} Steps: {1,8}%iteration%\b"),
    # Lightning, of its checkpoints: its epochs are those of its bar.
    Row(r"\bEpoch [0-9]{1,9}, global step %iteration%: '"),
    # What clu writes; chainer's bar.
    Row(r"logging_writer\.py:[0-9]{1,5}\] \[%iteration%\] (?:steps_per_second|train|loss)"),
    Row(r"^\s{0,8}%iteration% iter, %epoch_done% epoch / [0-9]{1,9} epochs"),
    # YOLO where its bar was cut off.
    Row(r"^\s{1,12}%epoch%/%epochs%\s{2,12}[0-9.]{1,8}[GMK]\s"),
)

_METRIC = (
    r"(?=.{0,60}?(?<![A-Za-z])(?i:loss|acc(?:uracy)?|rewards?|score|err(?:or)?|mse|mae|auc|ppl"
    r"|perplexity|best|fitness|energy)(?![A-Za-z])[\w. ]{0,12}(?:[:=]\s{0,2}|\s)-?[0-9])"
)
# Lines that hardly say what they count: any other format replaces them.
BARE = (
    # "[12/100] loss=0.31" and "12/100, acc: 0.9", maybe behind what logging puts there: without a
    # metric, or beside another count, it may be a rank, a fold, or a file that is downloaded.
    Row(
        r"^(?:.{0,60}\bINFO\b[^\[(0-9]{0,40})?\s{0,8}[\[(]? {0,6}%step% ?/ {0,3}%steps%[\])]?"
        r"[\s:,|-]{1,6}(?=[A-Za-z'\"{])(?!(?i:val|test|eval))"
        r"(?!.{0,300}?(?i:epoch|step|iter|batch|episode|round|rank|fold|trial))" + _METRIC
    ),
    Row(
        r"^\W{0,3}(?i:generation|gen|epi?|game|sweep|cycle)\W{1,4}%iteration%"
        r"(?: ?(?:/|of) ?%total%)?\b(?!/)(?=.{0,60}?[A-Za-z_][\w ]{0,16}[:=]?\s{0,2}-?[0-9])",
        counted=Counted.OTHERS,
    ),
    # PyTorch's first examples print "99 680.91", and others "i=99, loss=0.3" and "it 99: loss 0.3".
    Row(
        r"^\s{0,8}(?:(?:it|[itnk#])[ =:]{0,3})?%iteration%[\s,:|]{1,4}(?:loss[\s:=]{1,3})?"
        r"(?P<value>-?[0-9]{1,20}\.[0-9]{1,20}(?:e[-+]?[0-9]{1,3})?)\s{0,8}$",
        counted=Counted.OTHERS,
    ),
    # Keras-GAN: "99 [D loss: 0.54, acc.: 83.1%] [G loss: 0.84]"; "99 Reward: 20".
    Row(
        r"^\s{0,8}%iteration%[\s,:|]{1,4}\[?(?:[DG] )?"
        r"(?i:loss|acc|reward|score|error|mse|mae|fitness)\w{0,16}\s?[:=]",
        counted=Counted.OTHERS,
    ),
)

# A bar without a total: "21it [00:10, 2.10it/s]"; Lightning's "Epoch 3: |   | 13/? [00:01<…".
OTHER_BARS = (
    Row(r"^\s{0,8}Epoch %epoch%: \|[^|]{0,400}\| ?%step%/\? \[[^\]]{0,30}it/s%rest%"),
    Row(r"(?:^|[\s:])%iteration%it \[[0-9:]{1,12}, %rest%"),
)
