import os

# The suite starts processes beside gRPC's threads; none of them uses gRPC after the fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
