"""The pages of the console, a module for each kind of resource."""
