"""The exports of `rl_training.runtime`. Written by `make generate`. Do not edit."""

from rl_training.runtime.callbacks import Callback as Callback
from rl_training.runtime.callbacks import EarlyStoppingCallback as EarlyStoppingCallback
from rl_training.runtime.callbacks import EarlyStoppingConfig as EarlyStoppingConfig
from rl_training.runtime.checkpoint_writer import CheckpointWriter as CheckpointWriter
from rl_training.runtime.checkpointing import Checkpoint as Checkpoint
from rl_training.runtime.checkpointing import open_checkpoint as open_checkpoint
from rl_training.runtime.collector import Collector as Collector
from rl_training.runtime.control_config import ControlsConfig as ControlsConfig
from rl_training.runtime.control_config import build_control_callbacks as build_control_callbacks
from rl_training.runtime.engine import Engine as Engine
from rl_training.runtime.evaluation import EvaluationResult as EvaluationResult
from rl_training.runtime.evaluation import Evaluator as Evaluator
from rl_training.runtime.evaluation import Policy as Policy
from rl_training.runtime.schedules import Schedule as Schedule
from rl_training.runtime.session import LoopSettings as LoopSettings
from rl_training.runtime.session import Session as Session
from rl_training.runtime.trainer_state import TrainerState as TrainerState
from rl_training.runtime.training_loop import TrainResult as TrainResult
from rl_training.runtime.training_loop import run_session as run_session
