"""Scripts for the development of the package."""
