"""The error for callers while responses that are not read use up the memory of a project
(api/limits/answer_memory.py).
"""

from broker.model.errors import Unavailable


def slow_readers(project: str = "") -> Unavailable:
    """The refusal of a call that would make one more answer; of `project` ("projects/p"), if it is about one."""
    of = f" of {project}" if project else ""
    return Unavailable(f"Too much is on its way to slow readers{of}; try again.")
