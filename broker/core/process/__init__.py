"""What a process runs on: clock, tasks, jobs, child processes, retries."""
