"""`supmer tune`: tune a prompt on the user's own labeled examples, which need no entry in a registry."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import click

from flows.options import overlaid, precision_option, set_option
from flows.workspace import enter
from model.text.templates import Form
from storage import paths
from storage.counts import counted, listed
from storage.errors import InputError
from storage.signs_of_life import doing
from tasks.methods import INITIALIZATIONS, METHODS

if TYPE_CHECKING:
    from model.t5.precision import Choice
    from tasks.labeled.dataset import LabeledDataset
    from tasks.own_examples.method import OwnMethod
    from tasks.own_examples.tuning import OwnTuning
    from tasks.params.schema import Params
    from tasks.stage.contract import Record

BUILT = [name for name, row in METHODS.items() if row.is_built]
EXAMPLES = """\b
Examples:
  supmer tune --data my.jsonl --text review --label stars --output my-prompt
  supmer tune --data my.csv --prompt prompts/t5-77m-news-reviews --output my-prompt
  supmer tune --data my.csv --text title --text body --label topic --prompt artifacts/prompt/supmer --output my-prompt
  supmer tune --data my.jsonl --text review --label stars --method p-tuning-v2 --output my-prefixes
  supmer tune --data my.jsonl --text review --label stars --method tfidf
  supmer tune --data my.jsonl --text review --label stars --template "{review} It was" \\
      --verbalizer 1=terrible,5=great --seeds 10,20 --learning-rates 0.1,0.3 --output my-prompt
"""


@click.command(name="tune", epilog=EXAMPLES)
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    help="Labeled examples: JSON lines, CSV, TSV, Parquet, or a folder.",
)
@click.option("--text", "texts", multiple=True, metavar="FIELD", help="Column of the text; repeat it for a second one.")
@click.option("--label", default="label", show_default=True, metavar="FIELD", help="Column of the label.")
@click.option("--template", metavar="TEXT", help="The input as a text with {FIELD}; <X> where plain T5 fills in.")
@click.option(
    "--verbalizer",
    metavar="LABEL=WORD,…",
    help="The model's word for each label; also as JSON, or the name of a .json file; default: the label.",
)
@click.option("--method", type=click.Choice(BUILT), metavar="NAME", help=f"A method of the tables: {', '.join(BUILT)}.")
@click.option("--prompt", type=click.Path(path_type=Path), help="Start from the prompt in this folder.")
@click.option("--init", type=click.Choice([*INITIALIZATIONS]), help="Start from random words, or from noise.")
@click.option("--form", type=click.Choice(get_args(Form)), help="Form of the template; default: the prompt's.")
@click.option("--backbone", type=click.Path(path_type=Path), help="A model's folder; default: the acquired backbone.")
@click.option(
    "--shots", type=click.IntRange(min=1), help="Examples per label for training, and as many for validation."
)
@click.option("--seeds", metavar="N,N,…", help="Each seed draws its own examples.")
@click.option("--learning-rates", metavar="X,X,…", help="Each is tried for every seed; validation chooses.")
@click.option("--epochs", type=click.IntRange(min=1), help="Passes over the examples.")
@precision_option("params.yaml")
@click.option("--output", type=click.Path(path_type=Path), help="Folder for the tuned prompt; default: FILE-prompt.")
@set_option
def command(output: Path | None, settings: tuple[str, ...], **options: Any) -> None:
    """Tune a prompt on a few labeled examples of your own, and test it on the rest.

    If `labels.json` or `test.*` lie beside the file, they give the labels and the test set. Options that are not given
    come from `tune` in params.yaml; `-S tune.epochs=50` works for this command too.
    """
    from storage.atomic import refuse_place

    output = (output or Path(f"{options['data'].absolute().name.split('.')[0]}-prompt")).absolute()
    options = _absolute(options)
    words = _parsed(options)
    refuse_place(output)
    root = enter()
    params = overlaid(root, settings)[0]
    plain = _read(options, words, params)
    _check(root, params, options, plain)
    with doing("tune: loading torch and hashing the backbone"):
        own, choice = _own(root, params, options, plain)
    click.echo(f"{plain.name}: {_counted(plain)}; {_started(own)}, {choice}")
    for warning in filter(None, (choice.warning, *_word_warnings(own))):
        click.echo(f"warning: {warning}", err=True)
    rows = _tuned(own, output)
    _print(rows, "the test set" if own.dataset.test else "the rest")
    if own.keeps_result:
        kept = METHODS[own.method.row].trains if own.method.row else "prompt"
        said = f"the {kept} of the seed with the best validation score"
        click.echo(f"{output}: {said}; `supmer predict --prompt {output} --data FILE`")
    else:
        why = "is there to compare with" if own.trains else "trains nothing"
        click.echo(f"{own.method.name} {why}: {output} is not written")


def _parsed(options: dict[str, Any]) -> dict[str, str] | None:
    """Parse the options that hold lists, in place, and return the word of each label."""
    from tasks.own_examples.options import parse_numbers, parse_verbalizer

    named = [f"--{name}" for name in ("method", "prompt", "init") if options[name] is not None]
    if len(named) > 1:
        raise InputError(f"{' and '.join(named)}: a tuning starts from the one or the other: leave one out")
    if options["backbone"] is not None and not options["backbone"].is_dir():
        raise InputError(f"{options['backbone']}: not there: give the folder of a model")
    options["seeds"] = parse_numbers("--seeds", options["seeds"], int)
    options["learning_rates"] = parse_numbers("--learning-rates", options["learning_rates"], float)
    return parse_verbalizer(options["verbalizer"])


def _read(options: dict[str, Any], words: dict[str, str] | None, params: Params) -> LabeledDataset:
    """Read the user's data, and say which files and rows are used."""
    from model.text.datasets import SHORT
    from tasks.labeled.user_data import read_user_data
    from tasks.own_examples.options import left_out_in_words

    length = params.tune.max_length or SHORT
    plain = read_user_data(
        options["data"], options["texts"], options["label"], options["template"], words, max_length=length
    )
    for note in filter(None, (*plain.notes, left_out_in_words(plain.left_out))):
        click.echo(f"{plain.name}: {note}", err=True)
    return plain


def _check(root: Path, params: Params, options: dict[str, Any], plain: LabeledDataset) -> None:
    """Raise InputError for what can be seen without torch: too few examples, a start or backbone that is not there."""
    from tasks.labeled.dataset import few_shot_split
    from tasks.own_examples.options import check_backbone, check_start

    check_start(_row(options), options["prompt"], root / paths.PROMPTS, len(plain.form.fields))
    if options["backbone"] is None:
        check_backbone(root / paths.BACKBONE, options["prompt"])
    for seed in options["seeds"] or params.tune.seeds:
        few_shot_split(plain, options["shots"] or params.tune.shots, seed)


def _row(options: dict[str, Any]) -> str:
    """Return the row of the table of methods that --method or --init names, or the default."""
    row: str = options["method"] or INITIALIZATIONS[options["init"] or next(iter(INITIALIZATIONS))]
    return row


def _absolute(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with absolute paths, resolved against the user's working directory."""
    return {name: value.absolute() if isinstance(value, Path) else value for name, value in options.items()}


def _own(root: Path, params: Params, options: dict[str, Any], plain: LabeledDataset) -> tuple[OwnTuning, Choice]:
    """Return the tuning and the choice of its precision; from here on, torch is needed."""
    from model.device import device
    from model.t5.precision import choose
    from storage.sources.source import read_manifest
    from tasks.own_examples.backbone import backbone_about, folder_source, template_form, workspace_embedder
    from tasks.own_examples.tuning import OwnTuning
    from tasks.tune.plan import Tuning
    from tasks.tune.tokenized_form import asked_by

    tune = params.tune
    choice = choose(options["precision"] or tune.precision or params.precision, device())
    method = _method(root, params, options, len(plain.form.fields))
    dataset, row = asked_by(method.row, plain), METHODS.get(method.row)
    rates = params.at(row.learning_rates) if row else tune.learning_rates
    folder = options["backbone"]
    source = read_manifest(root / paths.BACKBONE)[0] if folder is None else folder_source(folder)
    tuning = Tuning(
        dataset=dataset.name,
        method=method.name,
        shots=options["shots"] or tune.shots,
        form=options["form"] or template_form(method.start, params.metatrain.template),
        prompt_tokens=method.tokens or params.metatrain.prompt_tokens,
        max_length=plain.form.max_length,
        learning_rates=tuple(options["learning_rates"] or rates),
        batch_size=tune.batch_size,
        epochs=options["epochs"] or tune.epochs,
        evaluate_every=tune.evaluate_every,
        precision=choice.precision,
        settings={key: params.at(key) for key in row.settings} if row else {},
    )
    own = OwnTuning(
        tuning=tuning,
        seeds=tuple(options["seeds"] or tune.seeds),
        dataset=dataset,
        method=method,
        test_limit=tune.test_examples,
        backbone=root / source.folder,
        about=backbone_about(source, method.start, method.prompt, folder),
        work=root / paths.OWN_TUNING,
        checkpoint_seconds=tune.checkpoint_seconds,
        embedder=workspace_embedder(root) if row and row.embeds else None,
    )
    return own, choice


def _method(root: Path, params: Params, options: dict[str, Any], fields: int) -> OwnMethod:
    """Return the method with its start: that of --method, of --prompt, or of --init."""
    from tasks.own_examples.method import prompt_method, table_method

    if options["prompt"] is not None:
        return prompt_method(options["prompt"])
    return table_method(_row(options), params.metatrain.prompt_tokens, root / paths.PROMPTS, fields)


def _word_warnings(own: OwnTuning) -> list[str]:
    from model.text.tokenization import TemplateTokenizer
    from tasks.own_examples.options import word_warnings

    tokenizer = TemplateTokenizer.from_folder(own.backbone, own.tuning.max_length)
    return list(word_warnings(own.dataset.form, cast("Form", own.tuning.form), tokenizer))


def _counted(dataset: LabeledDataset) -> str:
    test = f", {len(dataset.test):,} to test on" if dataset.test else ""
    return f"{counted(len(dataset.train), 'example')} to learn from{test}, labels {listed(dataset.form.labels)}"


def _started(own: OwnTuning) -> str:
    runs = len(own.seeds) * len(own.tuning.learning_rates)
    if not own.trains:
        return f"{own.method.name}, {own.tuning.form} template"
    if own.method.row and METHODS[own.method.row].trains == "classifier":
        return f"{counted(runs, 'fit')} of {own.method.name}"
    if own.method.row and METHODS[own.method.row].trains in ("weights", "adapter"):
        apart = " one after the other" if runs > 1 else ""
        return f"{counted(runs, 'run')} of {own.method.name}{apart}, {own.tuning.form} template"
    together = " together" if runs > 1 else ""
    return f"{counted(runs, 'run')}{together} from {own.method.start_name}, {own.tuning.form} template"


def _tuned(own: OwnTuning, output: Path) -> list[Record]:
    from flows.run.console import ConsoleReporter
    from tasks.own_examples.tuning import tune_own

    done, total = 0, own.tuning.epochs
    with ConsoleReporter().alive("tune: under way") as reporter, reporter.progress("tune", total, "epochs") as bar:
        bar.note("loading the backbone")

        def progress(share: float, note: str) -> None:
            nonlocal done
            bar.note(note)
            more, done = int(share * total) - done, int(share * total)
            if more:
                bar.advance(more)

        try:
            return tune_own(own, output, progress, reporter.say)
        except KeyboardInterrupt:
            click.echo("interrupted: the same command continues from the last checkpoint", err=True)
            raise


def _print(rows: list[Record], tested: str) -> None:
    """Print a row for each seed and the mean accuracy on what was tested."""
    from flows.terminal import table
    from tasks.own_examples.options import chance_warning

    columns = ("seed", "learning rate", "validation", "best step", "test", "macro F1", "examples", "status")
    names = ("seed", "learning_rate", "validation_score", "best_step", "score", "macro_f1", "examples", "status")
    cells = [[_shown(row[name]) for name in names] for row in rows]
    for line in table(columns, cells, [True] * (len(columns) - 1) + [False]):
        click.echo(line)
    scores = [row["score"] for row in rows if row["score"] is not None]
    if scores:
        spread = f" ± {statistics.stdev(scores):.3f}" if len(scores) > 1 else ""
        seeds = counted(len(scores), "seed")
        click.echo(f"accuracy on {tested}: {statistics.fmean(scores):.3f}{spread} over {seeds}")
        majority = statistics.fmean(row["majority_share"] for row in rows if row["majority_share"] is not None)
        if warning := chance_warning(scores, majority):
            click.echo(f"warning: {warning}", err=True)
    else:
        click.echo("no examples were left to test on: add some, or lower --shots")


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value)
