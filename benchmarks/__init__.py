"""What the broker does in a second, beside Google's emulator on the same machine.  See docs/benchmarks.md."""
