"""The window of a text that a model sees.

It is a function of the number of ids alone, so generation with and without a cache of keys and values gives the same
logits.
"""


def window_start(length: int, context: int) -> int:
    """Where the window begins that a model sees of `length` ids.

    0 while all of them fit; then it moves on by half a context at a time, because after each move the cache has to be
    filled again. So at least half a context is always in view.
    """
    stride = max(1, context // 2)
    return -(-max(0, length - context) // stride) * stride
