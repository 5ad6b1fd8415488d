"""The checks: one module for each part of the course, and in it one check for each exercise, named after it.

A check is a generator, `Steps`. A file with several functions has a check for each, by the name of the function, so
that all that are wrong are named. The one named "" needs all of them, and runs only if they are right.
"""
