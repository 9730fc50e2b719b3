"""The formats headway knows."""

from headway.progress.bars import Bars, HuggingFace, Lightning
from headway.progress.boosting import catboost_reader, lightgbm_reader, xgboost_reader
from headway.progress.counting import Counts
from headway.progress.format import Certainty, Format
from headway.progress.keras import Keras
from headway.progress.plain import BarsAndWords, Plain, only_training
from headway.progress.protocol import DLLogger, read_headway
from headway.progress.pytorch import pytorch_reader
from headway.progress.sklearn import ScikitLearn
from headway.progress.tensorflow import Caffe, tensorflow_reader


def known_formats() -> tuple[Format, ...]:
    """All formats with fresh readers, the surest first; the first that can read a line wins."""
    sure = Certainty.SURE
    words = Plain()
    bars = BarsAndWords(Bars(), words)
    return (
        Format("headway", Certainty.PROTOCOL, ('"headway"',), read_headway),
        Format("dllogger", sure, ("DLL ", "DLLL "), DLLogger()),
        Format("huggingface", sure, HuggingFace.hints, HuggingFace(bars), keeps_count=True),
        Format("lightning", sure, Lightning.hints, Lightning(bars), keeps_count=True),
        Format("keras", sure, ("poch ", "[=", "[>", "━", " - "), Keras(), steps_are_of_epoch=True),
        Format(
            "pytorch",
            sure,
            ("Epoch: ", "Epoch [", "Epoch[", "Train: "),
            pytorch_reader(),
            steps_are_of_epoch=True,
        ),
        Format("tensorflow", sure, ("step = ", "tep "), tensorflow_reader()),
        Format("caffe", sure, ("max_iter", "] Iteration ", "solver.cpp:", "caffe.cpp:"), Caffe()),
        Format("xgboost", sure, ("]\t", "] "), xgboost_reader(), counts=Counts.ROUNDS),
        Format(
            "lightgbm",
            sure,
            ("'s ", "[LightGBM]", "cv_agg"),
            lightgbm_reader(),
            counts=Counts.ROUNDS,
        ),
        Format(
            "catboost",
            sure,
            ("learn: ", "test: "),
            catboost_reader(),
            counts=Counts.ROUNDS,
        ),
        Format("sklearn", sure, ScikitLearn.hints, ScikitLearn(), counts=Counts.ROUNDS),
        Format("tqdm", Certainty.BAR, ("%|", "it [", "alidati", "valuati"), bars, keeps_count=True),
        Format("plain", Certainty.LOOSE, ("",), only_training(words)),
    )
