"""A process apart that closes its pipe a while before it ends of a signal of its own."""

import os
import signal
import time

if __name__ == "__main__":
    os.close(1)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGPROF)
