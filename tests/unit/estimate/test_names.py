"""Names of GPUs and networks as drivers, clouds, data sheets and data sets write them."""

import pytest

from headway.estimate.features import Configuration
from headway.estimate.physics import shipped, with_site
from headway.units import GIB

GPUS = {
    # As NVML says it.
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H200": "h200",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA GH200 144G HBM3e": "gh200-144gb",
    "NVIDIA H800": "h800",
    "NVIDIA H20": "h20",
    "NVIDIA B200": "b200",
    "NVIDIA GB200": "gb200",
    "NVIDIA L4": "l4",
    "NVIDIA L40": "l40",
    "NVIDIA L40S": "l40s",
    "NVIDIA A2": "a2",
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA A100-SXM4-40GB": "a100",
    "NVIDIA A100-SXM4-80GB": "a100-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie",
    "A100-PCIE-40GB": "a100-pcie",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A800-SXM4-80GB": "a800",
    "NVIDIA A800 80GB PCIe": "a800-pcie",
    "NVIDIA RTX A2000 12GB": "a2000-12gb",
    "NVIDIA RTX A4000": "a4000",
    "NVIDIA RTX A6000": "a6000",
    "NVIDIA RTX 4000 Ada Generation": "rtx4000-ada",
    "NVIDIA RTX 4000 SFF Ada Generation": "rtx4000-sff-ada",
    "NVIDIA RTX 6000 Ada Generation": "rtx6000-ada",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000-workstation",
    "Quadro RTX 4000": "rtx4000",
    "Quadro RTX 6000": "rtx6000",
    "Quadro P4000": "p4000",
    "Tesla K80": "k80",
    "Tesla T4": "t4",
    "Tesla P100-PCIE-16GB": "p100",
    "Tesla P100-PCIE-12GB": "p100-12gb",
    "Tesla P100-SXM2-16GB": "p100-sxm2",
    "Tesla V100-SXM2-16GB": "v100",
    "Tesla V100-SXM2-32GB": "v100-32gb",
    "Tesla V100-PCIE-16GB": "v100-pcie",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
    "Tesla V100S-PCIE-32GB": "v100s",
    "GeForce GTX 1080 Ti": "gtx1080ti",
    "GeForce GTX TITAN X": "gtx-titan-x",
    "NVIDIA TITAN X (Pascal)": "titanx",
    "NVIDIA TITAN Xp": "titanxp",
    "NVIDIA TITAN V": "titanv",
    "NVIDIA TITAN RTX": "titanrtx",
    "NVIDIA GeForce RTX 2080 Ti": "rtx2080ti",
    "NVIDIA GeForce RTX 2080 SUPER": "rtx2080super",
    "NVIDIA GeForce RTX 3060": "rtx3060",
    "NVIDIA GeForce RTX 3060 Ti": "rtx3060ti",
    "NVIDIA GeForce RTX 3080 Ti": "rtx3080ti",
    "NVIDIA GeForce RTX 4070": "rtx4070",
    "NVIDIA GeForce RTX 4070 SUPER": "rtx4070super",
    "NVIDIA GeForce RTX 4070 Ti": "rtx4070ti",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "rtx4070tisuper",
    "NVIDIA GeForce RTX 4090": "rtx4090",
    "NVIDIA GeForce RTX 4090 D": "rtx4090-d",
    "NVIDIA GeForce RTX 5090": "rtx5090",
    # As clouds, orchestrators and markets say it.
    "nvidia-tesla-v100": "v100",
    "nvidia-h100-80gb": "h100",
    "NVIDIA-A100-SXM4-80GB": "a100-80gb",
    "V100-32GB": "v100-32gb",
    "A100_PCIE": "a100-pcie",
    "A100_SXM4": "a100",
    "H100_NVL": "h100-nvl",
    "RTX6000-Ada": "rtx6000-ada",
    "RTX_6000Ada": "rtx6000-ada",
    "RTX_4070S_Ti": "rtx4070tisuper",
    # As data sets and people say it.
    "v100": "v100",
    "k80": "k80",
    "p100": "p100",
    "a100_80gb": "a100-80gb",
    "A100 80 GB": "a100-80gb",
    "H100 80GB PCIe Gen5": "h100-pcie",
    "H100 80GB SXM5": "h100",
    "rtx2080ti": "rtx2080ti",
    "RTX 3090": "rtx3090",
    "3090": "rtx3090",
    "cpu": "cpu",
}
NONE_OF_THE_TABLE = {
    "NVIDIA GeForce RTX 4090 Laptop GPU": "rtx4090-laptop",
    "NVIDIA GeForce RTX 2080 Super with Max-Q Design": "rtx2080super-maxq",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": "a100-mig-1g-5gb",
    "NVIDIA H100 80GB HBM3 MIG 3g.40gb": "h100-mig-3g-40gb",
    "NVIDIA A100-SXM-64GB": "a100-64gb",
    "Tesla V100-SXM3-32GB": "v100-32gb-sxm3",
    "NVIDIA A40-48Q": "a40-48q",
    "NVIDIA RTX 5000 Ada Generation Laptop GPU": "rtx5000-ada-laptop",
}
"""Variants that no row describes: types of their own, known by their nearest relative."""


@pytest.mark.parametrize(("product", "name"), {**GPUS, **NONE_OF_THE_TABLE}.items())
def test_a_product_is_the_gpu_that_all_its_words_name(product: str, name: str) -> None:
    tables = shipped()
    assert tables.gpu_name(product) == name
    assert tables.gpu_name(name) == name
    assert tables.gpu_name(product.lower()) == name


def test_every_row_is_named_by_its_own_name() -> None:
    names = list(shipped().gpus)
    assert [shipped().gpu_name(name) for name in names] == names


@pytest.mark.parametrize("product", sorted(GPUS.keys() - {"cpu"}))
def test_what_the_table_has_is_not_guessed(product: str) -> None:
    _, facts, is_guessed = shipped().find_gpu(product)
    assert facts is not None
    assert not is_guessed


@pytest.mark.parametrize("product", NONE_OF_THE_TABLE)
def test_of_an_unknown_variant_the_base_is_a_guess(product: str) -> None:
    known = shipped().complete(Configuration(gpu_type=product))
    assert known.gpu_is_guessed
    assert known.gpu_flops_per_s is not None


def test_a_partition_has_its_share() -> None:
    _, whole, _ = shipped().find_gpu("NVIDIA A100-SXM4-40GB")
    _, part, _ = shipped().find_gpu("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert whole is not None
    assert part is not None
    assert part.half_flops_per_s == pytest.approx(whole.half_flops_per_s / 7)
    assert part.memory_bytes == 5 * GIB
    assert part.bandwidth_bytes_per_s == pytest.approx(whole.bandwidth_bytes_per_s / 8)


@pytest.mark.parametrize(
    "product", ["NVIDIA RTX PRO 4000 Blackwell", "AMD Instinct MI300X", "NVIDIA Wonder 9"]
)
def test_another_chip_with_the_same_number_says_nothing(product: str) -> None:
    assert shipped().find_gpu(product)[1:] == (None, False)


def test_a_sites_row_knows_the_product_by_the_shipped_words(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "gpus.csv").write_text(
        "gpu_type,fp32_tflops,half_tflops,memory_gib,bandwidth_gb_s\n"
        "v100,1,2,3,4\nh100-mega,5,6,7,8\n"
    )
    tables = with_site(tmp_path)
    _, facts, is_guessed = tables.find_gpu("Tesla V100-SXM2-16GB")
    assert facts is not None
    assert (facts.fp32_flops_per_s, is_guessed) == (1e12, False)
    assert tables.gpu_name("nvidia-h100-mega-80gb") == "h100-mega-80gb"


@pytest.mark.parametrize(
    ("network", "same"),
    [
        ("bert_base_squad", "bert-base"),
        ("bert-large-squad", "bert-large"),
        ("google-bert/bert-base-uncased", "bert-base"),
        ("ResNet_50", "resnet50"),
        ("resnet50_v1.5", "resnet50"),
        ("resnet50-imagenet", "resnet50"),
        ("wide_resnet50_2", "wide-resnet50-2"),
        ("EfficientNet_B0", "efficientnet-b0"),
        ("vit-b/16", "vit-b-16"),
        ("google/vit-base-patch16-224", "vit-b-16"),
        ("inceptionv3", "inception-v3"),
        ("swin_tiny_patch4_window7_224", "swin-t"),
        ("openai-community/gpt2", "gpt2"),
    ],
)
def test_a_network_is_known_by_its_other_names(network: str, same: str) -> None:
    assert shipped().network_facts(network) == shipped().network_facts(same)
    assert shipped().network_facts(network) is not None


@pytest.mark.parametrize(
    "network", ["distilbert-tiny", "gpt2-german", "resnet505", "resnet5", "robertina-base", "squad"]
)
def test_a_network_of_another_word_is_another(network: str) -> None:
    assert shipped().network_facts(network) is None


def test_networks_of_one_name_are_one_however_it_is_spelt() -> None:
    spelt = {"ResNet-50", "resnet_50", "resnet50"}
    assert {shipped().complete(Configuration(network=n)).network for n in spelt} == {"resnet50"}
