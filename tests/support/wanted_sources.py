"""The sources of params.yaml: the group `acquire`, as the code that lists local sources takes it."""

from dataclasses import dataclass, field


@dataclass
class Wanted:
    """No corpus, no dataset, and models that are not local."""

    corpus: dict = field(default_factory=dict)
    datasets: dict = field(default_factory=dict)
    backbone: str = "hf:google-t5/t5-small"
    embedder: str = "hf:org/embedder"
