"""The lessons: ten steps from averaging the past to GPT, each a few functions that read production parameters.

The chapters that go with them are in docs/learn, and `jumok.lessons.chapters` reads and checks them.
"""
