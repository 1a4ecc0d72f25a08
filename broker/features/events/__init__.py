"""Events: messages that tell operators what has begun or ended, on a topic of the project."""
