"""What differs where Citus distributes the tables over nodes."""
