"""Extensions of the broker, a package for each."""
