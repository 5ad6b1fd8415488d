"""The functions of the chapters: each module computes, step by step, what a production module computes.

The chapters are in docs/learn. `jumok.lessons.chapters` reads and checks them.
"""
