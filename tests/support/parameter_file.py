"""A small params.yaml, and the messages when a file or a setting is refused."""

import pytest

from storage.errors import InputError
from tasks.params.file import load, read, validate
from tasks.params.overrides import override

GROUPS = "the groups are: acquire, sample, embed, cluster, materialize, metatrain, tune, report"

MINIMAL = """\
# parameters of a test
seed: 3  # any
acquire:
  backbone: hf:a/backbone
  embedder: hf:a/embedder
  corpus:
    news: path:/news  # our own

  # labeled
  datasets: {}
# drawing
sample:
  budget_mb: 20   # MB
  near_duplicates: {enabled: true, bands: 3}
tune:
  seeds:
    - 10
    - 20
  # what is compared
  methods: [pt]
"""


def refusal(path, text=None):
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value)


def refused_settings(path, *assignments):
    with pytest.raises(InputError) as caught:
        validate(override(read(path), assignments))
    return str(caught.value)
