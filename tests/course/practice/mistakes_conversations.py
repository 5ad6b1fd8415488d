"""The exercises on conversations: mistakes as replacements."""

from __future__ import annotations

LINE = "ids += [role_ids[role], *encode(content), end]"
LAST = 'return [*ids, role_ids["assistant"]]'
SAME = "segments[:, :, None] == segments[:, None, :]"
TRIANGLE = "torch.ones(t, t, dtype=torch.bool).tril()"
BOTH = f"return same & {TRIANGLE}"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("chat_template", "no-assistant", [(LAST, "return ids")]),
    ("chat_template", "end-after-assistant", [(LAST, 'return [*ids, role_ids["assistant"], end]')]),
    ("chat_template", "no-end", [(", end]", "]")]),
    ("chat_template", "one-end", [(", end]", "]"), (LAST, 'return [*ids, end, role_ids["assistant"]]')]),
    ("chat_template", "no-roles", [("[role_ids[role], *encode(content), end]", "[*encode(content), end]")]),
    ("chat_template", "other-content", [("encode(content)", "encode(content + chr(10))")]),
    ("chat_template", "no-return", [(LAST, "ids.append(0)")]),
    ("chat_template", "not-a-list", [(LAST, 'return (*ids, role_ids["assistant"])')]),
    ("answer_mask", "end-left-out", [("if writes:", "if writes and ids[place + 1] != end:")]),
    ("answer_mask", "role-counts", [("if writes:", "if writes or ids[place + 1] == assistant:")]),
    ("answer_mask", "not-shifted", [("        if ids[place] == assistant",
                                     "        if writes:\n            targets[place] = ids[place]\n"
                                     "        if ids[place] == assistant"),
                                    ("        if writes:\n            targets[place] = ids[place + 1]\n    return",
                                     "    return")]),
    ("answer_mask", "first-left-out", [("if writes:", "if writes and ids[place] != assistant:")]),
    ("answer_mask", "everybody", [("if writes:", "if True:")]),
    ("answer_mask", "does-not-stop", [("            writes = False", "            pass")]),
    ("answer_mask", "first-answer-only", [("== assistant:", "== assistant and not (targets >= 0).any():")]),
    ("answer_mask", "zeros", [("-100)", "0)")]),
    ("packing_mask", "sees-the-future", [(BOTH, "return same")]),
    ("packing_mask", "no-segments", [(BOTH, f"return {TRIANGLE}")]),
    ("packing_mask", "no-segments", [(BOTH, f"return {TRIANGLE}.expand(len(segments), t, t)")]),
    ("packing_mask", "mask-inverted", [(BOTH, f"return ~(same & {TRIANGLE})")]),
    ("packing_mask", "future-only", [("tril()", "triu()")]),
    ("packing_mask", "not-to-itself", [("tril()", "tril(-1)")]),
    ("packing_mask", "at-least", [(SAME, SAME.replace("==", ">="))]),
]  # fmt: skip
