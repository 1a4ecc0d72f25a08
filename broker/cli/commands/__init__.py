"""Commands about core resources and messages, and about the program itself."""
