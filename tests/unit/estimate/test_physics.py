import pytest

from headway.errors import InvalidInput
from headway.estimate.features import Configuration
from headway.estimate.physics import shipped, with_site


def test_a_known_network_on_a_known_gpu_gets_their_facts():
    known = shipped().complete(Configuration(network="ResNet-50", gpu_type="v100"))
    assert known.flops == pytest.approx(4.09e9)
    assert known.gpu_flops_per_s == pytest.approx(15.7e12)
    half = shipped().complete(Configuration(network="x", gpu_type="v100", precision="amp"))
    assert half.gpu_flops_per_s == pytest.approx(125e12)
    assert half.flops is None


def test_what_the_trace_brings_is_left_as_it_is():
    known = shipped().complete(Configuration(network="resnet50", flops=8e9))
    assert (known.flops, known.params) == (8e9, None)


def test_the_site_adds_and_wins(tmp_path):
    (tmp_path / "gpus.csv").write_text(
        "gpu_type,fp32_tflops,half_tflops,memory_gib,bandwidth_gb_s,source\nv100,1,2,3,4,us\n"
    )
    tables = with_site(tmp_path)
    assert tables.gpus["v100"].fp32_flops_per_s == 1e12
    assert "t4" in tables.gpus


@pytest.mark.parametrize("bad", ["nan", "-1", "x", "", "inf", "0"])
def test_a_bad_number_is_named_with_its_line(tmp_path, bad):
    (tmp_path / "gpus.csv").write_text(
        f"gpu_type,fp32_tflops,half_tflops,memory_gib,bandwidth_gb_s\nz1,{bad},2,3,4\n"
    )
    with pytest.raises(InvalidInput, match=r"gpus\.csv:2 fp32_tflops"):
        with_site(tmp_path)


@pytest.mark.parametrize("network", ["timm/regnety_004.pycls_in1k", "regnety_004", "RegNetY-004"])
def test_a_network_that_nobody_wrote_down_is_known_by_its_librarys_name(network):
    facts = shipped().network_facts(network)
    assert facts is not None
    assert facts.flops == pytest.approx(402e6, rel=0.02)
    assert facts.params == pytest.approx(4.34e6, rel=0.01)


def test_every_row_of_the_shipped_tables_has_a_source():
    import csv
    from importlib import resources

    for name in ("gpus.csv", "networks.csv"):
        text = (resources.files("headway.estimate") / "data" / name).read_text()
        for row in csv.DictReader(text.splitlines()):
            assert row["source"], row
            assert None not in row, row
