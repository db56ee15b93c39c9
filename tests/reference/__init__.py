"""Independent float64 NumPy references for the tests: no autodiff, no import of the library."""
