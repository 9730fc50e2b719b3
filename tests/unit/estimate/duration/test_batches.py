import numpy as np
import pytest

from headway.estimate.duration.batches import Batches
from headway.estimate.encode import Encoder
from headway.estimate.features import Configuration


def relative(learnt, network, batch_size):
    encoder = Encoder.fit(learnt)
    asked = [Configuration(network=network, batch_size=batch_size)]
    found = Batches.fit(learnt).relative(encoder, encoder.encode(asked), asked)
    return found[0, encoder.columns.index("batch_size")]


def networks(usual, tried):
    """A network for each usual batch, tried with others around it, all in powers of two."""
    return [
        Configuration(network=f"n{at}", batch_size=2 ** (middle + away))
        for at, middle in enumerate(usual)
        for away in tried
    ]


def test_a_known_network_goes_by_its_own_usual_batch():
    assert relative(networks([1, 9], [0, 1, 2]), "n0", 8) == pytest.approx(1.0)


def test_of_a_new_network_two_images_are_usual_where_networks_differ_more_than_their_batches():
    assert relative(networks([1, 4, 9], [0]), "new", 2) == 0.0
    assert -1.0 < relative(networks([1, 4, 9], [0, 1]), "new", 2) < 0.0


def test_of_a_new_network_a_batch_counts_where_all_networks_have_the_same():
    assert relative(networks([5, 5, 5], [-2, 0, 2]), "new", 8) == pytest.approx(-2.0)


def test_a_batch_beyond_all_tells_nothing():
    assert np.isnan(relative(networks([1, 4], [0, 1]), "new", 4096))
