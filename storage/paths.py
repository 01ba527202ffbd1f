"""All paths in a workspace: the outputs of stages and the program's own files.

Outputs of stages are written as in dvc.yaml, relative to the root of the workspace.
"""

from pathlib import Path

# Stage acquire: one folder, with a manifest, for each role of a source.
SOURCES = "data/sources"
BACKBONE = f"{SOURCES}/backbone"
EMBEDDER = f"{SOURCES}/embedder"
CORPUS = f"{SOURCES}/corpus"
DATASETS = f"{SOURCES}/datasets"
ACQUIRE_METRICS = "data/metrics/acquire.json"

# Stage sample.
DOCUMENTS = "data/corpus/documents"
EXCLUDED = "data/corpus/excluded"
SENTENCES = "data/corpus/sentences"
SAMPLE_METRICS = "data/metrics/sample.json"
EXCLUDED_PLOT = "data/plots/excluded.csv"
SENTENCE_WORDS_PLOT = "data/plots/sentence_words.csv"

# Stage embed.
EMBEDDINGS = "data/embeddings"

# Stage cluster.
ASSIGNMENTS = "data/clusters/assignments"
CENTROIDS = "data/clusters/centroids"
NEAREST = "data/clusters/nearest"
CLUSTER_METRICS = "data/metrics/cluster.json"
CLUSTER_SIZES_PLOT = "data/plots/cluster_sizes.csv"

# Stage materialize.
TASKS = "data/tasks"
MATERIALIZE_METRICS = "data/metrics/materialize.json"

# Stage metatrain.
ARTIFACTS = "artifacts"
PROMPTS = f"{ARTIFACTS}/prompt"
TRAINING_STEPS = "data/training/steps"
HELD_OUT = "data/training/held_out"
KINDS = "data/training/kinds"
METATRAIN_METRICS = "data/metrics/metatrain.json"
METATRAIN_PLOTS = "data/plots/metatrain"

# Stage tune.
TUNED_PROMPTS = f"{ARTIFACTS}/tuned"
SCORES = "data/tuning/scores"
CURVES = "data/tuning/curves"
COSTS = "data/tuning/costs"
PREDICTIONS = "data/tuning/predictions"
TESTED_EXAMPLES = "data/tuning/tested_examples"
TUNE_METRICS = "data/metrics/tune.json"
TUNE_PLOTS = "data/plots/tune"

# Stage report.
REPORT = "report"
REPORT_PAGE = f"{REPORT}/index.html"
REPORT_TEXT = f"{REPORT}/report.md"
REPORT_METRICS = f"{REPORT}/metrics.json"

# Under version control: the documents that must never be used, the certificates of forgetting them, prompts.
FORGOTTEN = "forgotten.csv"
CERTIFICATES = Path("lineage", "forgotten")
SHIPPED_PROMPTS = "prompts"  # learned prompts with their provenance, a folder for each

# The program's own files.
EVENTS = Path("lineage", "events.jsonl")
PRIVATE = Path(".supmer")
SHARDS = PRIVATE / "shards"
DOWNLOADS = PRIVATE / "downloads"
SCRATCH = PRIVATE / "tmp"  # temporary files of running stages
OWN_TUNING = PRIVATE / "own-tuning"
WORKSPACE_LOCK = PRIVATE / "lock"
SCHEDULE = PRIVATE / "schedule"
SERVER = PRIVATE / "server"  # address and key of the lasting Prefect server
OPENER = PRIVATE / "open.html"  # leads a browser to that server
FORGETTING = PRIVATE / "forgetting"  # what tables held before documents are forgotten, until that is certified
DVC_LOCK_COPY = PRIVATE / "dvc.lock"
PREFECT_HOME = Path(".prefect")


def source(role: str) -> str:
    """Return the folder that holds the sources of a role."""
    return f"{SOURCES}/{role}"
