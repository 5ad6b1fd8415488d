"""The exercises on sampling, generation, the KV cache and beam search: each mistake is recognised by name."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

MASK = 'logits.masked_fill(logits < least, float("-inf"))'
BACK = "torch.empty_like(logits).scatter(-1, places, ordered)"
OUT = 'ordered.masked_fill(before >= p, float("-inf"))'
ALLOWED = "torch.ones(t, past + t, dtype=torch.bool).tril(past)"
GROWN = "candidates.append((total + value, [*ids, token]))"
FINISHED = "                candidates.append((total, ids))\n"
SORTED = "sorted(candidates, key=lambda candidate: candidate[0], reverse=True)[:beam]"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("temperature", "multiplied", [("logits / temperature", "logits * temperature")]),
    ("temperature", "after-softmax", [("torch.softmax(logits / temperature, dim=-1)",
                                       "torch.softmax(logits, dim=-1) / temperature")]),
    ("temperature", "no-effect", [("logits / temperature", "logits")]),
    ("temperature", "no-softmax", [("torch.softmax(logits / temperature, dim=-1)", "logits / temperature")]),
    ("temperature", "dimension", [("temperature, dim=-1", "temperature, dim=0")]),
    ("temperature", "division-by-zero", [("temperature == 0", "False")]),
    ("temperature", "division-by-zero", [("temperature == 0", "False"),
                                         ("logits / temperature", "logits * (1 / temperature)")]),
    ("temperature", "ids-returned", [("torch.zeros_like(logits).scatter(-1, largest, 1.0)", "largest")]),
    ("temperature", "temperature-one-at-zero", [("logits / temperature", "logits / (temperature or 1)"),
                                                ("temperature == 0", "False")]),
    ("temperature", "no-return", [("return torch.softmax", "torch.softmax")]),
    ("top_k", "in-place", [("masked_fill", "masked_fill_")]),
    ("top_k", "zeros", [('float("-inf")', "0.0")]),
    ("top_k", "one-fewer", [("logits < least", "logits <= least")]),
    ("top_k", "one-more", [("torch.topk(logits, k, dim=-1)", "torch.topk(logits, k + 1, dim=-1)")]),
    ("top_k", "smallest", [("torch.topk(logits, k, dim=-1)", "torch.topk(logits, k, dim=-1, largest=False)"),
                           ("logits < least", "logits > least")]),
    ("top_k", "removed-the-largest", [("logits < least", "logits >= least")]),
    ("top_k", "one-threshold", [(".values[:, -1:]", ".values[0, -1]")]),
    ("top_k", "one-threshold", [("torch.topk(logits, k, dim=-1).values[:, -1:]",
                                 "logits.flatten().topk(k).values[-1]")]),
    ("top_k", "values-only", [(MASK, "torch.topk(logits, k).values")]),
    ("top_k", "k-too-large", [("    k = min(k, logits.shape[-1])\n", "")]),
    ("top_p", "in-place", [("    ordered, places", "    logits -= logits.max()\n    ordered, places")]),
    ("top_p", "crossing-dropped", [("before >= p", "before + shares > p")]),
    ("top_p", "one-more", [("before >= p", "(before.roll(1, -1) * (torch.arange(shares.shape[-1]) > 0)) >= p")]),
    ("top_p", "not-unsorted", [(BACK, "ordered")]),
    ("top_p", "mask-not-unsorted", [(OUT, 'logits.masked_fill(before >= p, float("-inf"))'), (BACK, "ordered")]),
    ("top_p", "unsorted-twice", [(BACK, "ordered.gather(-1, places)")]),
    ("top_p", "unsorted-twice", [(BACK, 'logits.masked_fill((before >= p).gather(-1, places), float("-inf"))')]),
    ("top_p", "not-sorted", [("torch.softmax(ordered, dim=-1)", "torch.softmax(logits, dim=-1)"),
                             (OUT, 'logits.masked_fill(before >= p, float("-inf"))'), (BACK, "ordered")]),
    ("top_p", "least-likely", [("descending=True", "descending=False")]),
    ("top_p", "zeros", [('float("-inf")', "0.0")]),
    ("top_p", "each-by-itself", [(BACK, 'logits.masked_fill(logits.softmax(-1) < p, float("-inf"))')]),
    ("top_p", "no-softmax", [("torch.softmax(ordered, dim=-1)", "ordered")]),
    ("top_p", "probabilities-returned", [(OUT, 'shares.masked_fill(before >= p, float("-inf"))')]),
    ("top_p", "none-left", [("before >= p", "(before >= p) | (shares > 0.001) & (p < 0.01)")]),
    ("generate", "earlier-exercise", [('mine("temperature").probabilities', "lambda logits, temperature: logits")]),
    ("generate", "no-model", [("model(ids[:, -context_length:])[:, -1]", "torch.zeros(len(ids), 11)")]),
    ("generate", "not-cropped", [("ids[:, -context_length:]", "ids")]),
    ("generate", "all-positions", [("[:, -1]", "")]),
    ("generate", "logits-drawn", [("probabilities(logits, temperature)", "logits - 1")]),
    ("generate", "first-position", [("[:, -1]", "[:, 0]")]),
    ("generate", "first-tokens", [("ids[:, -context_length:]", "ids[:, :context_length]")]),
    ("generate", "last-token-only", [("ids[:, -context_length:]", "ids[:, -1:]")]),
    ("generate", "same-input", [("for _ in range(tokens)", "start = ids\n        for _ in range(tokens)"),
                                ("model(ids[", "model(start[")]),
    ("generate", "prompt-lost", [("            logits =",
                                  "            ids = ids[:, -context_length:]\n            logits =")]),
    ("generate", "prompt-lost", [("return ids", "return ids[:, -tokens:]")]),
    ("generate", "not-appended", [("ids = torch.cat", "torch.cat")]),
    ("generate", "return-in-the-loop", [("    return ids", "            return ids")]),
    ("generate", "dimensions", [("temperature), 1)", "temperature), 1).squeeze()")]),
    ("generate", "cat-dimension", [("new), dim=1)", "new))")]),
    ("generate", "train-mode", [("    model.eval()\n", "")]),
    ("generate", "graph", [("torch.no_grad()", "torch.enable_grad()")]),
    ("generate", "argmax", [("torch.multinomial(probabilities(logits, temperature), 1)",
                             "logits.argmax(-1, keepdim=True)")]),
    ("generate", "same-rows", [("            ids = torch.cat", "            if logits.unique().numel() == 1:\n"
                                "                new = new[:1].expand(len(ids), 1)\n            ids = torch.cat")]),
    ("generate", "uneven", [("probabilities(logits, temperature)", "probabilities(logits, temperature) * "
                             "torch.linspace(0.1, 1, logits.shape[-1])")]),
    ("generate", "temperature-ignored", [("(logits, temperature)", "(logits, 1.0)")]),
    ("kv_cache", "no-mask", [(ALLOWED, "torch.ones(t, past + t, dtype=torch.bool)")]),
    ("kv_cache", "no-positions", [("x + self.position(torch.arange(past, past + t))", "x")]),
    ("kv_cache", "no-scale", [(" * q.shape[-1] ** -0.5", "")]),
    ("kv_cache", "not-stored", [("        if cache is not None:\n", "        if cache:\n")]),
    ("kv_cache", "names", [('cache["k"], cache["v"] = k, v', 'cache["keys"], cache["values"] = k, v'),
                           ('past = cache["k"].shape[1] if cache else 0', "past = 0")]),
    ("kv_cache", "not-appended", [("        if cache is not None:\n", "        if cache == {}:\n")]),
    ("kv_cache", "not-appended", [("        if cache:\n            k =", "        if False:\n            k ="),
                                  (ALLOWED, "torch.ones(t, t, dtype=torch.bool).tril()")]),
    ("kv_cache", "not-appended", [("        if cache:\n            k =", "        if False:\n            k ="),
                                  ('cache["k"].shape[1] if cache else 0', "0")]),
    ("kv_cache", "cat-dimension", [('(cache["k"], k), dim=1', '(cache["k"], k), dim=0')]),
    ("kv_cache", "square-mask", [(ALLOWED, "torch.ones(past + t, past + t, dtype=torch.bool).tril()")]),
    ("kv_cache", "inputs-stored", [('cache["k"], cache["v"] = k, v', 'cache["k"], cache["v"] = x, x'),
                                   ('k = torch.cat((cache["k"], k), dim=1)', 'x = torch.cat((cache["k"], x), dim=1)'),
                                   ('v = torch.cat((cache["v"], v), dim=1)', "k, v = self.key(x), self.value(x)")]),
    ("kv_cache", "positions-restart", [("torch.arange(past, past + t)", "torch.arange(t)")]),
    ("kv_cache", "mask-top-left", [("tril(past)", "tril()")]),
    ("kv_cache", "mask-top-left", [("tril(past)", "tril(past if t == 1 else 0)")]),
    ("kv_cache", "without-itself", [("tril(past)", "tril(past - 1 if past else 0)")]),
    ("kv_cache", "no-mask-in-a-piece", [("tril(past)", "tril(past + t * bool(past))")]),
    ("kv_cache", "values-as-keys", [('cache["k"], cache["v"] = k, v', 'cache["k"], cache["v"] = v, k'),
                                    ('(cache["k"], k)', '(cache["v"], k)'), ('(cache["v"], v)', '(cache["k"], v)')]),
    ("beam_search", "product", [("total + value", "total * value"), ("(0.0, [start])", "(1.0, [start])")]),
    ("beam_search", "probabilities-added", [("next_log_probabilities(ids).tolist()",
                                             "next_log_probabilities(ids).exp().tolist()")]),
    ("beam_search", "last-token-only", [("total + value", "value")]),
    ("beam_search", "continued-after-the-end", [("ids[-1] == end", "False")]),
    ("beam_search", "finished-dropped", [(FINISHED, "")]),
    ("beam_search", "each-beam-alone", [
        ("            for token, value", "            grown = []\n            for token, value"),
        (GROWN, "grown.append((total + value, [*ids, token]))\n"
                "            candidates += sorted(grown, reverse=True)[: 1 if len(beams) == beam else beam]")]),
    ("beam_search", "divided-by-length", [("key=lambda candidate: candidate[0]",
                                          "key=lambda candidate: candidate[0] / (len(candidate[1]) - 1)")]),
    ("beam_search", "stopped-early", [("    return beams", "        if beams[0][1][-1] == end:\n            break\n"
                                       "    return beams")]),
    ("beam_search", "start-missing", [("return beams", "return [(total, ids[1:]) for total, ids in beams]")]),
    ("beam_search", "shared-list", [(GROWN,
                                     "ids.append(token)\n                candidates.append((total + value, ids))")]),
    ("beam_search", "finished-kept-apart", [
        (FINISHED, "                apart.append((total, ids))\n"),
        ("    for _ in range", "    apart = []\n    for _ in range"),
        ("    return beams", "    return sorted(apart + beams, key=lambda one: -one[0])[:beam]"),
        (SORTED, "sorted(candidates, key=lambda one: -one[0])\n"
         "        apart += [one for one in beams if one[1][-1] == end]\n"
         "        beams = [one for one in beams if one[1][-1] != end][:beam]")]),
    ("beam_search", "too-many", [("[:beam]", "")]),
    ("beam_search", "worst-kept", [("reverse=True", "reverse=False")]),
    ("beam_search", "greedy", [("[:beam]", "[:1]")]),
    ("beam_search", "order", [("return beams", "return beams[::-1]")]),
    ("beam_search", "not-pairs", [("return beams", "return [ids for _, ids in beams]")]),
    ("beam_search", "no-return", [("return beams", "beams")]),
]  # fmt: skip


@pytest.mark.parametrize(("slug", "mistake", "replacements"), MISTAKES)
def test_a_mistake_is_recognised(judged, slug: str, mistake: str, replacements: list[tuple[str, str]]) -> None:
    verdict = judged(slug, *replacements)
    assert (verdict["status"], verdict["mistake"]) == ("wrong", mistake), verdict
