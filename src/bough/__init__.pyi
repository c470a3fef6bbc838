from bough import driver as driver
from bough.api.array import Array as Array
from bough.api.completed import Completed as Completed
from bough.api.group import Group as Group
from bough.api.here import here as here
from bough.api.session import Session as Session
from bough.api.spaces import product as product
from bough.api.spaces import tie as tie
from bough.api.task import Task as Task
from bough.errors import BoughError as BoughError
from bough.errors import InternalError as InternalError
from bough.errors import NotRun as NotRun
from bough.errors import SiteError as SiteError
from bough.errors import TaskFailed as TaskFailed
from bough.errors import UserError as UserError

__version__: str
