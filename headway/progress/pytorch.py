"""The lines of PyTorch's own examples and of torchvision's references.

Train Epoch: 1 [640/60000 (1%)]	Loss: 2.300039          counts samples
Train: 0 [  50/1251 (  4%)]  Loss: 6.93 (6.94)           timm
Train:    1/3 ( 33%) [  49/323 ( 15%)]  Loss: 36.77      OpenPCDet
Epoch: [0][  10/5005]	Time  0.5 ( 0.6)	Loss 6.9e+00 (7.0e+00)
Epoch: [0]  [  10/5005]  eta: 1:23:45  lr: 0.1  loss: 6.9 (7.0)  time: 0.5
Epoch [1/5], Step [100/600], Loss: 0.3
Train: [14/300][300/1251]	eta 0:10:17 lr 0.000712      Swin
"""

import re
from collections.abc import Iterator

from headway.progress.layout import ByShape, by_patterns
from headway.progress.metrics import Number, pairs

# "Loss 6.9e+00 (7.0e+00)": the value, then the average of the epoch so far.
_METER = re.compile(
    r"([A-Za-z][\w@.]{0,30}+) {1,6}([-+]?[0-9]{1,20}(?:\.[0-9]{0,20})?(?:e[-+]?[0-9]{1,3})?) \(",
    re.ASCII,
)


def _meters(text: str) -> Iterator[Number]:
    yield from pairs(text)
    for match in _METER.finditer(text):
        yield match.span(1), *match.span(2)


def pytorch_reader() -> ByShape:
    """Reads the lines of the examples named at the top of the file."""
    return by_patterns(
        r"Train(?: Epoch)?: {1,8}%epoch%(?:/%epochs%)?(?: \([ 0-9.]{1,6}%\))? {0,2}"
        r"\[ {0,12}%step%/%steps%[^\]]{0,20}\]",
        r"(?:Epoch|Train):? {0,2}\[ {0,6}%epoch%(?:/%epochs%)?\],?\s{0,4}(?:Step |Iter |Batch )?"
        r"\[ {0,12}%step% {0,2}/ {0,12}%steps%\]",
        find=_meters,
    )
