"""The tables of stage metatrain: the measures of each step, the loss on held-out tasks, and their scores by kind."""

import pyarrow as pa

MEASURES = (  # measured at each step by model.meta.trainer and its objectives
    "support_loss", "query_loss", "gate_loss", "similarity", "s", "b", "lambda", "gate", "inner_size", "inner_norm",
    "query_norm", "prompt_gradient_norm", "regularizer_gradient_norm", "prompt_norm", "learning_rate", "tokens",
)  # fmt: skip

_STEP = [("variant", pa.string()), ("step", pa.int64())]
TRAINING_STEPS = pa.schema([*_STEP, *((name, pa.float64()) for name in MEASURES)])
HELD_OUT = pa.schema([*_STEP, ("held_out_loss", pa.float64()), ("best", pa.bool_())])
KINDS = pa.schema(
    [
        *_STEP,
        ("kind", pa.string()),
        ("tasks", pa.int32()),
        ("examples", pa.int32()),
        ("chance", pa.float64()),
        ("chance_loss", pa.float64()),
        ("right_before", pa.float64()),
        ("right_after", pa.float64()),
        ("loss_before", pa.float64()),
        ("loss_after", pa.float64()),
        ("mass_before", pa.float64()),
        ("mass_after", pa.float64()),
        ("learned", pa.bool_()),
    ]
)
