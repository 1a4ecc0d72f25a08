"""Large blocks go back to the system at once; smaller ones are kept, for their pages cost more than what is done
with them (docs/decisions/0020-fair-shares.md).
"""

import subprocess
import sys

import pytest

_TAKEN_AND_FREED = """
import resource
from broker.cli.server.worker import give_large_blocks_back
give_large_blocks_back()
size, blocks, rounds = {size}, {blocks}, 100
for again in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        held = [bytes(b"x" * size) for _ in range(blocks)]
        del held
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // rounds)
"""
_PAGE = 4_096


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc that is told")
@pytest.mark.parametrize(("size", "blocks", "kept"), [(400_000, 8, True), (2_000_000, 1, False)])
def test_blocks_of_a_piece_are_kept_and_those_of_a_body_are_not(size: int, blocks: int, *, kept: bool) -> None:
    """By how many pages are taken each time."""
    program = _TAKEN_AND_FREED.format(size=size, blocks=blocks)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    _, pages = map(int, done.stdout.split())
    all_of_them = size * blocks // _PAGE
    assert pages < all_of_them / 10 if kept else pages >= all_of_them * 0.9
