"""The exercises on tokenizers: mistakes as replacements."""

from __future__ import annotations

UNKNOWN = 'ids.extend(character.encode("utf-8", errors="replace"))'
WRITTEN = 'written.decode("utf-8", errors="replace")'
MOVE = "                place += 2\n"
OUTER = "    for left, right in merges:\n        merged = []\n"
CHOSEN = "min(counts, key=lambda pair: (-counts[pair], pair))"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("character_tokenizer", "no-offset", [("256 + place", "place")]),
    ("character_tokenizer", "not-sorted", [("sorted(set(text))", "sorted(set(text), reverse=True)")]),
    ("character_tokenizer", "key-error", [("if character in self.id_of:", "if True:")]),
    ("character_tokenizer", "dropped", [(UNKNOWN, "pass")]),
    ("character_tokenizer", "one-unknown-id", [(UNKNOWN, "ids.append(0)")]),
    ("character_tokenizer", "not-utf8", [(UNKNOWN, "ids.append(ord(character))")]),
    ("character_tokenizer", "not-ids", [(UNKNOWN, "ids.append(list(character.encode()))")]),
    ("character_tokenizer", "byte-by-byte", [("written.append(one)",
                                              'written.extend(bytes([one]).decode("utf-8", "replace").encode())')]),
    ("character_tokenizer", "byte-by-byte", [("written.append(one)",
                                              'written.extend(bytes([one]).decode().encode())')]),
    ("character_tokenizer", "byte-as-character", [("written.append(one)", "written.extend(chr(one).encode())")]),
    ("character_tokenizer", "bytes-of-ids", [("        written = bytearray()", "        return bytes(ids).decode()\n"
                                              "        written = bytearray()")]),
    ("character_tokenizer", "bytes-left-over", [("        for one in ids:", "        while ids and ids[-1] < 256:\n"
                                                 "            ids.pop()\n        for one in ids:")]),
    ("character_tokenizer", "surrogate", [(UNKNOWN, "ids.extend(character.encode())")]),
    ("character_tokenizer", "surrogate-lost", [(UNKNOWN, 'ids.extend(character.encode("utf-8", errors="ignore"))')]),
    ("character_tokenizer", "half-a-character", [(WRITTEN, "written.decode()")]),
    ("character_tokenizer", "half-lost", [(WRITTEN, 'written.decode("utf-8", errors="ignore")')]),
    ("character_tokenizer", "no-return", [("return ids", "ids")]),
    ("bpe_merges", "overlapping", [(MOVE, "                place += 1\n")]),
    ("bpe_merges", "out-of-range", [("pieces[place : place + 2] == [left, right]",
                                     "pieces[place] == left and pieces[place + 1] == right")]),
    ("bpe_merges", "not-pieces", [("return pieces", 'return " ".join(pieces)')]),
    ("bpe_merges", "not-merged", [("        pieces = merged\n", "")]),
    ("bpe_merges", "last-piece-lost", [("while place < len(pieces):", "while place < len(pieces) - 1:")]),
    ("bpe_merges", "first-place-only", [
        ("if pieces[place : place + 2] == [left, right]",
         "if left + right not in merged and pieces[place : place + 2] == [left, right]")]),
    ("bpe_merges", "across-pieces", [
        (OUTER, '    text = " ".join(word)\n    for left, right in merges:\n'
                '        text = text.replace(left + " " + right, left + right)\n    return text.split()\n' + OUTER)]),
    ("bpe_merges", "order-ignored", [
        (OUTER, "    place = 0\n    while place < len(pieces) - 1:\n"
                "        if (pieces[place], pieces[place + 1]) in merges:\n"
                "            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]\n            place = 0\n"
                "        else:\n            place += 1\n    return pieces\n" + OUTER)]),
    ("bpe_merges", "words-once", [("counts[pair] += count", "counts[pair] += 1")]),
    ("bpe_merges", "rarest", [("(-counts[pair], pair)", "(counts[pair], pair)")]),
    ("bpe_merges", "tie", [(CHOSEN, "max(counts, key=lambda pair: (counts[pair], pair))")]),
    ("bpe_merges", "tie", [(CHOSEN, "max(counts, key=counts.get)"), ("words.items()", "reversed(words.items())")]),
    ("bpe_merges", "not-recounted", [
        ("pieces = apply_merges(word, merges)", "pieces = list(word)"),
        (CHOSEN, "min((p for p in counts if p not in merges), key=lambda pair: (-counts[pair], pair))")]),
    ("bpe_merges", "same-again", [("apply_merges(word, merges)", "list(word)")]),
    ("bpe_merges", "not-pairs", [(CHOSEN, f'"".join({CHOSEN})'),
                                 ("apply_merges(word, merges)", "list(word)")]),
    ("bpe_merges", "not-pairs", [(CHOSEN, "counts.most_common(1)[0]"), ("apply_merges(word, merges)", "list(word)")]),
    ("bpe_merges", "no-pair-left", [("        if not counts:\n            break\n", "")]),
    ("bpe_merges", "no-return", [("return merges", "merges")]),
]  # fmt: skip
