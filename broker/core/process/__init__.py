"""The foundations of a process: clock, tasks, jobs, child processes, retries."""
