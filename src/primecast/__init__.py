"""primecast."""
