"""What commands use to call a server of the API: connection, credentials, output, confirmation."""
