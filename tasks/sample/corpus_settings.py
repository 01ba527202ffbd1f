"""The settings of single corpora: the field of their texts, their weights and their budgets."""

from storage.records.selection import Limits
from tasks.params.schema import CorpusParams, SampleParams

_MEGABYTE = 1_000_000


def text_field(params: SampleParams, corpus: str) -> str:
    """Return the field that holds the texts of a corpus."""
    return _settings(params, corpus).text_field or params.text_field


def budget_mb(params: SampleParams, corpus: str) -> float:
    """Return the most text to draw from a corpus, in MB."""
    own = _settings(params, corpus).budget_mb
    return params.budget_mb if own is None else min(own, params.budget_mb)


def limits(params: SampleParams) -> Limits:
    """Return the weights and the budgets of the draw, in bytes."""
    weights = {name: _settings(params, name).weight for name in params.corpora}
    budgets = {name: int(corpus.budget_mb * _MEGABYTE) for name, corpus in params.corpora.items() if corpus.budget_mb}
    return Limits(int(params.budget_mb * _MEGABYTE), weights, budgets)


def _settings(params: SampleParams, corpus: str) -> CorpusParams:
    return params.corpora.get(corpus) or CorpusParams.model_validate({})
