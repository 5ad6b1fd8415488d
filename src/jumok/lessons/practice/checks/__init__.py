"""The checks: one module for each part of the course, one function for each exercise, named after it."""
