from dataclasses import replace

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


@pytest.mark.parametrize(
    ("network", "params"),
    [  # as their authors tell
        ("google-bert/bert-base-uncased", 110e6),
        ("FacebookAI/roberta-large", 355e6),
        ("distilbert-base-uncased", 66e6),
        ("openai-community/gpt2-xl", 1.56e9),
        ("EleutherAI/pythia-410m-deduped", 405e6),
        ("meta-llama/Llama-2-7b-hf", 6.74e9),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03e9),
        ("mistralai/Mistral-7B-Instruct-v0.2", 7.24e9),
        ("Qwen/Qwen2.5-0.5B", 494e6),
        ("google-t5/t5-small", 60.5e6),
        ("facebook/bart-large", 406e6),
    ],
)
def test_language_models_have_their_published_size(network, params):
    facts = shipped().network_facts(network)
    assert facts is not None
    assert facts.params == pytest.approx(params, rel=0.02)
    # An addition and a multiplication for each parameter and token, and attention beside it;
    # looking a token up in a table costs nothing.
    assert 0.5 * params < facts.flops / facts.tokens < 1.6 * params


@pytest.mark.parametrize("option", ["--max_seq_length", "--seq-len", "--block-size"])
def test_longer_samples_of_text_are_more_work_for_the_same_parameters(option):
    usual = shipped().complete(Configuration(network="bert-base"))
    longer = shipped().complete(Configuration(network="bert-base", settings={option: 512.0}))
    assert longer.flops == pytest.approx(2 * usual.flops)
    assert longer.activations == pytest.approx(2 * usual.activations)
    assert longer.params == usual.params
    image = Configuration(network="resnet50", settings={option: 512.0})
    assert shipped().complete(image) == replace(
        shipped().complete(replace(image, settings={})), settings=image.settings
    )


def test_every_row_of_the_shipped_tables_has_a_source():
    import csv
    from importlib import resources

    for name in ("gpus.csv", "networks.csv"):
        text = (resources.files("headway.estimate") / "data" / name).read_text()
        for row in csv.DictReader(text.splitlines()):
            assert row["source"], row
            assert None not in row, row
