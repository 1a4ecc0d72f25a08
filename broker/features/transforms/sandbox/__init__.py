"""The child process that runs transforms in QuickJS."""
