"""Extensions of the broker, one package for each."""
