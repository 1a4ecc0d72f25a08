"""The API client of the commands: connection, credentials, output, confirmation."""
