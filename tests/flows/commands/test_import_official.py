"""`supmer import-official` reads the authors' files as they are, and refuses what is not one of them in one line."""

import json
import pickle
import zipfile
from functools import partial

import numpy as np
import pytest
import torch

from model.prompt.regularizer import GradientRegularizer
from model.tuning.official import ReleasedRegularizer, read_official, regularizer_of
from storage.errors import InputError
from storage.prompts.prompt_artifact import PromptArtifact, read_prompt

WIDTH, RANK, HIDDEN = 6, 3, 5


def state(seed=0):
    """A state dict as released, with the running statistics that are NaN where nothing was normalized."""
    chance = torch.Generator().manual_seed(seed)
    shapes = {"grad_mean": (WIDTH,), "grad_std": (WIDTH,), "grad_s": (WIDTH,), "k": (1,)}
    held = {name: torch.full(shape, float("nan")) for name, shape in shapes.items()}
    shapes = {"mlp.linear_1.weight": (HIDDEN, WIDTH), "mlp.linear_1.bias": (HIDDEN,)}
    shapes |= {"mlp.linear_2.weight": (1, HIDDEN), "mlp.linear_2.bias": (1,)}
    for layer in range(2):
        parts = {"u": (WIDTH, RANK), "v": (RANK, WIDTH), "bias": (WIDTH,)}
        shapes |= {f"mlp.layers.{layer}.{part}": shape for part, shape in parts.items()}
    return held | {name: torch.randn(shape, generator=chance) for name, shape in shapes.items()}


def released_psi(held, gradient, hidden_mean):
    """What the authors' module gives for one gradient [P, d], computed with numpy in float64."""
    of = {name: value.double().numpy() for name, value in held.items()}
    x = gradient
    for layer in range(2):
        u, v, bias = (of[f"mlp.layers.{layer}.{part}"] for part in ("u", "v", "bias"))
        x = np.maximum(x @ v.T @ u.T + bias, 0)
    x = x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-8) * (np.linalg.norm(gradient, axis=1, keepdims=True) + 1e-8)
    hidden = np.maximum(of["mlp.linear_1.weight"] @ hidden_mean + of["mlp.linear_1.bias"], 0)
    coefficient = 1 / (1 + np.exp(-(of["mlp.linear_2.weight"] @ hidden + of["mlp.linear_2.bias"])))
    return (1 - coefficient) * x + coefficient * gradient


@pytest.fixture
def files(tmp_path):
    prompt, regularizer = tmp_path / "prompt_x.pt", tmp_path / "gradient_edit_x.pt"
    torch.save(torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1)), prompt)
    torch.save(state(), regularizer)
    return prompt, regularizer


@pytest.fixture
def supmer(command_line):
    """Run `supmer import-official`."""
    return partial(command_line, "import-official")


class TestTheCommand:
    def test_both_files_become_a_prompt_folder_that_says_where_from(self, supmer, files, tmp_path):
        prompt, regularizer = files
        code, out, _ = supmer("--prompt", prompt, "--regularizer", regularizer, tmp_path / "out")
        assert code == 0
        assert "4 tokens, width 6, with regularizer" in out
        artifact = read_prompt(tmp_path / "out")
        np.testing.assert_array_equal(artifact.prompt, torch.load(prompt).numpy())
        assert isinstance(regularizer_of(artifact), ReleasedRegularizer)
        assert artifact.gate == "scalar"
        config = json.loads((tmp_path / "out/config.json").read_text())
        assert config["imported_from"]["prompt"]["file"] == "prompt_x.pt"
        card = (tmp_path / "out/README.md").read_text()
        assert config["imported_from"]["regularizer"]["sha256"] in card
        assert "2 layers of rank 3, a gate over 5" in card
        assert sorted(path.name for path in tmp_path.iterdir()) == ["gradient_edit_x.pt", "out", "prompt_x.pt"]

    def test_without_a_regularizer_there_is_none(self, supmer, files, tmp_path):
        assert supmer("--prompt", files[0], tmp_path / "out")[0] == 0
        artifact = read_prompt(tmp_path / "out")
        assert artifact.regularizer == {}
        assert regularizer_of(artifact) is None
        assert "| regularizer | none |" in (tmp_path / "out/README.md").read_text()

    def test_bad_files_are_one_line_and_exit_code_2_and_leave_nothing(self, supmer, files, tmp_path):
        files[1].write_bytes(files[1].read_bytes()[:-200])
        target = tmp_path / "out"
        code, _, message = supmer("--prompt", files[0], "--regularizer", files[1], target)
        assert code == 2
        assert message.count("\n") == 1
        assert str(files[1]) in message
        assert not target.exists()

    def test_a_folder_that_is_there_is_not_touched(self, supmer, files, tmp_path):
        (tmp_path / "out").mkdir()
        code, _, message = supmer("--prompt", files[0], tmp_path / "out")
        assert (code, "already exists" in message) == (2, True)
        assert list((tmp_path / "out").iterdir()) == []

    def test_the_help_has_an_example(self, supmer):
        code, out, _ = supmer("--help")
        assert code == 0
        assert "supmer import-official --prompt prompt_t5base.pt" in out


class TestConversion:
    def test_the_regularizer_gives_the_released_numbers(self, files):
        psi = regularizer_of(read_official(*files)).double()
        chance = np.random.default_rng(2)
        gradients, means = chance.normal(size=(3, 4, WIDTH)), chance.normal(size=(3, WIDTH))
        with torch.no_grad():
            found = psi(torch.from_numpy(gradients), psi.gates(torch.from_numpy(means)))
        for number in range(3):
            expected = released_psi(torch.load(files[1]), gradients[number], means[number])
            np.testing.assert_allclose(found[number].numpy(), expected, rtol=1e-6, atol=1e-7)

    def test_a_gradient_of_zeros_has_derivatives(self, files):
        psi = regularizer_of(read_official(*files))
        gradient = torch.zeros(1, 4, WIDTH, requires_grad=True)
        psi(gradient, psi.gates(torch.ones(1, WIDTH))).sum().backward()
        assert torch.isfinite(gradient.grad).all()

    @pytest.mark.parametrize(
        "form", [torch.nn.Parameter, lambda tensor: tensor[None], torch.Tensor.double, lambda tensor: tensor.half()]
    )
    def test_a_parameter_a_batch_axis_and_other_precisions_are_taken(self, files, form):
        values = torch.arange(24.0).reshape(4, WIDTH)  # exact in half precision
        torch.save(form(values), files[0])
        held = read_official(files[0], None).prompt
        assert held.dtype == np.float32
        np.testing.assert_array_equal(held, values.numpy())

    def test_the_older_format_of_torch_is_read(self, files):
        expected = read_official(*files)
        torch.save(torch.load(files[0]), files[0], _use_new_zipfile_serialization=False)
        np.testing.assert_array_equal(read_official(*files).prompt, expected.prompt)

    def test_our_own_regularizer_comes_back_from_an_artifact_as_well(self):
        for gate in ("vector", "scalar"):
            ours = GradientRegularizer(WIDTH, RANK, gate)
            held = {name: value.detach().numpy() for name, value in ours.state_dict().items()}
            again = regularizer_of(PromptArtifact(np.zeros((2, WIDTH), np.float32), held))
            assert isinstance(again, GradientRegularizer)
            for name, value in again.state_dict().items():
                torch.testing.assert_close(value, ours.state_dict()[name], rtol=0, atol=0)

    def test_tensors_of_no_known_regularizer_are_refused(self):
        with pytest.raises(InputError, match="has the tensors other, which fit no known regularizer"):
            regularizer_of(PromptArtifact(np.zeros((2, 2), np.float32), {"other": np.zeros(2, np.float32)}))


class Code:
    def __reduce__(self):
        return (print, ("code was run",))


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"weight": torch.zeros(2, 6)}, "holds the tensors weight: a prompt_"),
            ([1.0], "holds a list"),
            (torch.zeros(6), r"shape \[6\]"),
            (torch.zeros(2, 3, 6), r"shape \[2, 3, 6\]"),
            (torch.zeros(0, 6), r"shape \[0, 6\]"),
            (torch.zeros(2, 6, dtype=torch.int64), "holds int64"),
            (torch.tensor([[1.0, float("nan")]]), "not finite"),
            (torch.tensor([[1e300]], dtype=torch.float64), "not finite"),
            (torch.zeros(2, 6).to_sparse(), "not floating point"),
            (torch.zeros(2, 6, device="meta"), "has a shape but no numbers"),
            (torch.zeros(1).expand(200_000, 200_000), r"\[200000, 200000\] but only 1 numbers"),
            (Code(), "not a file of plain tensors"),
        ],
    )
    def test_what_is_no_prompt(self, tmp_path, capfd, content, message):
        path = tmp_path / "prompt_x.pt"
        torch.save(content, path)
        with pytest.raises(InputError, match=message) as refused:
            read_official(path, None)
        assert str(refused.value).startswith(f"{path}: ")
        assert "\n" not in str(refused.value)
        assert "code was run" not in capfd.readouterr().out

    @pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"PK\x03\x04 no zip"])
    def test_what_is_no_file_of_torch(self, tmp_path, content):
        path = tmp_path / "prompt_x.pt"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"prompt_x\.pt: not a") as refused:
            read_official(path, None)
        assert "\n" not in str(refused.value)

    def test_flipped_bits_are_found_by_the_checksums(self, files):
        whole = files[0].read_bytes()
        with zipfile.ZipFile(files[0]) as archive:
            numbers = next(part for part in archive.infolist() if part.filename.endswith("/data/0"))
            content = archive.read(numbers)
        at = whole.index(content) + 2
        files[0].write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError, match=r"prompt_x\.pt: damaged: .*data/0 does not have its checksum"):
            read_official(*files)

    def test_parts_that_would_have_to_be_unpacked_are_refused(self, files):
        with zipfile.ZipFile(files[0]) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(files[0], "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in parts.items():
                archive.writestr(name, content)
        with pytest.raises(InputError, match="is compressed"):
            read_official(*files)

    def test_a_bare_pickle_is_refused_without_a_word_of_torch(self, tmp_path, capfd):
        path = tmp_path / "prompt_x.pt"
        path.write_bytes(pickle.dumps(Code()))
        with pytest.raises(InputError, match="not a file of plain tensors"):
            read_official(path, None)
        assert capfd.readouterr() == ("", "")

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(InputError, match=r"cannot be read \(No such file"):
            read_official(tmp_path / "prompt_x.pt", None)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"mlp.layers.1.v": None}, "no tensor mlp.layers.1.v among grad_mean"),
            ({"mlp.linear_2.bias": None}, "no tensor mlp.linear_2.bias"),
            ({"mlp.scale.weight": torch.ones(1, 6)}, "it has the unknown tensors mlp.scale.weight"),
            ({"mlp.layers.3.u": torch.ones(6, 3)}, "no tensor mlp.layers.2.u"),
            ({"mlp.layers.1.u": torch.ones(5, 3)}, r"mlp.layers.1.u has the shape \[5, 3\], not \[6, 3\]"),
            ({"mlp.layers.0.u": torch.ones(6, 2)}, r"mlp.layers.0.v has the shape \[3, 6\], not \[2, 6\]"),
            ({"mlp.layers.0.bias": torch.ones(1)}, r"mlp.layers.0.bias has the shape \[1\], not \[6\]"),
            ({"mlp.linear_2.weight": torch.ones(6, 5)}, r"mlp.linear_2.weight has the shape \[6, 5\], not \[1, 5\]"),
            ({"mlp.linear_1.bias": torch.full((5,), float("inf"))}, "mlp.linear_1.bias holds numbers that are not fin"),
            ({"mlp.layers.0.u": 3.0}, "holds no state dict"),
        ],
    )
    def test_what_is_no_regularizer(self, files, change, message):
        held = {name: value for name, value in (state() | change).items() if value is not None}
        torch.save(held, files[1])
        with pytest.raises(InputError, match=message) as refused:
            read_official(*files)
        assert "\n" not in str(refused.value)

    def test_a_regularizer_of_another_width_than_the_prompt(self, files):
        torch.save(torch.zeros(4, 8), files[0])
        with pytest.raises(InputError, match="as a prompt of width 8 needs it"):
            read_official(*files)
