"""Events: messages on a topic of the project that tell operators which conditions have begun or ended."""
