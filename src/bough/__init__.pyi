from bough import analysis as analysis
from bough import monitors as monitors
from bough import sim as sim
from bough.api.futures.array import Array as Array
from bough.api.futures.completed import Completed as Completed
from bough.api.futures.task import Task as Task
from bough.api.memo.decorator import memo as memo
from bough.api.session.session import Session as Session
from bough.api.submit.groups import Group as Group
from bough.api.submit.task_options.checkpoint_options import Checkpoint as Checkpoint
from bough.api.task_context import here as here
from bough.errors import BoughError as BoughError
from bough.errors import InternalError as InternalError
from bough.errors import NotRun as NotRun
from bough.errors import SiteError as SiteError
from bough.errors import TaskFailed as TaskFailed
from bough.errors import UserError as UserError
from bough.errors import WorkflowFailed as WorkflowFailed
from bough.model.outcomes import EndedEarly as EndedEarly
from bough.model.spaces import product as product
from bough.model.spaces import tie as tie

__version__: str
