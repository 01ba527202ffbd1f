"""Backbones that cannot be loaded are refused in one line, whatever a library raises."""

import json

import pytest
import torch

from model.t5.backbone import load_backbone
from storage.errors import InputError
from support.training_room import save_backbone


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return save_backbone(tmp_path_factory.mktemp("models") / "backbone")


@pytest.mark.parametrize(
    "change",
    [
        lambda _: 1e308,
        lambda _: [],
        lambda config: config | {"feed_forward_proj": {}},
        lambda config: config | {"d_model": None},
        lambda config: config | {"num_layers": "x"},
    ],
)
def test_a_config_with_values_of_wrong_types_is_refused(backbone, tmp_path, change):
    for path in backbone.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(change(json.loads((backbone / "config.json").read_text()))))
    with pytest.raises(InputError, match="cannot be loaded as a backbone"):
        load_backbone(tmp_path, torch.device("cpu"))
