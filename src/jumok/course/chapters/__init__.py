"""The functions of the chapters: each module computes, step by step, what a production module computes.

The text of the chapters is in docs/learn, and in the folder `text` of an installed package.
"""
