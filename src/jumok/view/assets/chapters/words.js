// @ts-check
// The words of the pieces, [Korean, English].

import { defineWords } from "../base/words.js";

defineWords({
  "piece.back": ["이전", "Back"],
  "piece.on": ["다음", "Next"],
  "piece.play": ["재생", "Play"],
  "piece.stop": ["정지", "Stop"],
  "piece.step": ["단계", "step"],

  "softmax.title": ["√D와 온도", "√D and temperature"],
  "softmax.width": ["폭 D", "width D"],
  "softmax.temperature": ["온도", "temperature"],
  "softmax.divided": ["√D로 나누기", "divide by √D"],
  "softmax.key": ["키 {n}", "key {n}"],
  "softmax.weight": ["가중치", "weight"],
  "softmax.score": ["점수", "score"],
  "softmax.formula": ["폭 D = {D}인 쿼리와 키, 점수 = {formula}", "query and keys of width D = {D}, score = {formula}"],
  "softmax.said": [
    "점수의 최댓값과 최솟값의 차이는 {spread}입니다. 가장 큰 가중치는 {largest}이고, 유효 토큰 수는 {n}개 중 {tokens}개입니다.",
    "The largest and the smallest score differ by {spread}. The largest weight is {largest}, and the effective number of tokens is {tokens} of {n}.",
  ],

  "mask.title": ["인과 마스크", "The causal mask"],
  "mask.masked": ["인과 마스크", "causal mask"],
  "mask.shown": ["표", "table"],
  "mask.scores": ["점수", "scores"],
  "mask.weights": ["가중치", "weights"],
  "mask.query": ["쿼리", "query"],
  "mask.axes": ["열: 키(참조하는 대상), 행: 쿼리", "columns: keys, rows: queries"],
  "mask.off": [
    "마스크가 없습니다. ‘{token}’의 가중치는 ‘{key}’에서 {weight}로 가장 크고, {future}가 미래 토큰으로 갑니다(점선).",
    "Without the mask, ‘{token}’ attends most to ‘{key}’ ({weight}), and {future} of its weight goes to future tokens (dashed).",
  ],
  "mask.on": [
    "마스크가 있습니다. 미래 토큰의 점수는 −∞, 가중치는 0입니다. ‘{token}’의 가중치는 ‘{key}’에서 {weight}로 가장 크고, 합은 여전히 1입니다.",
    "With the mask, scores of future tokens are −∞ and their weights 0. ‘{token}’ attends most to ‘{key}’ ({weight}); its weights still sum to 1.",
  ],
  "mask.last": [
    "마지막 토큰 ‘{token}’에는 미래 토큰이 없으므로 마스크가 있든 없든 같습니다. 가중치는 ‘{key}’에서 {weight}로 가장 큽니다.",
    "The last token, ‘{token}’, has no future tokens, so the mask changes nothing. It attends most to ‘{key}’ ({weight}).",
  ],

  "dot.title": ["q·k 한 번", "One q·k"],
  "dot.query": ["쿼리 토큰", "query token"],
  "dot.key": ["키 토큰", "key token"],
  "dot.product": ["q × k", "q × k"],
  "dot.sum": ["누적 합", "sum so far"],
  "dot.begin": [
    "‘{query}’의 쿼리와 ‘{key}’의 키는 각각 {D}개의 수로 이루어져 있습니다. 단계마다 같은 번호의 두 수를 곱하여 더합니다.",
    "The query of ‘{query}’ and the key of ‘{key}’ have {D} numbers each. Each step multiplies the numbers at one index and adds the product.",
  ],
  "dot.said": [
    "{i}번: {q} × {k} = {product}. 지금까지의 합은 {sum}입니다.",
    "Index {i}: {q} × {k} = {product}. The sum so far is {sum}.",
  ],
  "dot.divided": [
    "합을 √{D}로 나누면 점수({score})가 됩니다. 한 쿼리의 모든 점수에 소프트맥스를 적용하면 가중치가 됩니다.",
    "The sum divided by √{D} is the score, {score}. A softmax over all scores of the query gives the weights.",
  ],

  "rope.title": ["회전 위치 임베딩", "Rotary positions"],
  "rope.position": ["키의 위치", "position of the key"],
  "rope.distance": ["거리", "distance"],
  "rope.turn": ["위치당 {turn} rad", "{turn} rad"],
  "rope.score": ["q·k = {score}", "q·k = {score}"],
  "rope.distanceAxis": [
    "거리(쿼리의 위치 − 키의 위치)에 따른 q·k",
    "q·k by distance (position of the query − position of the key)",
  ],
  "rope.said": [
    "키의 위치는 {key}, 쿼리의 위치는 {query}이고, 거리는 {distance}입니다. 네 쌍의 곱을 더한 q·k는 {score}입니다.",
    "The key is at position {key} and the query at {query}, a distance of {distance}. The products of the four pairs add up to q·k = {score}.",
  ],

  "cache.title": ["KV 캐시", "The KV cache"],
  "cache.prompt": ["프롬프트", "prompt"],
  "cache.step": ["생성", "token"],
  "cache.with": ["캐시 있음", "with a cache"],
  "cache.without": ["캐시 없음", "without a cache"],
  "cache.keys": ["키·값(·: 캐시에서 읽음)", "keys, values (·: cached)"],
  "cache.grid": ["쿼리(행)와 키(열)의 쌍", "pairs of query and key"],
  "cache.positions": ["계산한 위치: {n}", "positions computed: {n}"],
  "cache.pairs": ["계산한 쌍: {n}", "pairs computed: {n}"],
  "cache.total": ["지금까지의 곱셈", "multiplications so far"],
  "cache.first": [
    "첫 단계에서는 프롬프트 전체를 읽고 다음 토큰(‘{token}’)을 예측합니다. 캐시가 있어도 계산량은 같습니다.",
    "The first step reads the whole prompt and predicts ‘{token}’. A cache saves nothing yet.",
  ],
  "cache.said": [
    "{step}번째 토큰(‘{token}’)을 예측합니다. 캐시가 없으면 토큰 {read}개를 모두, 캐시가 있으면 ‘{last}’만 계산합니다. 지금까지의 곱셈은 캐시가 없을 때가 있을 때의 {factor}배입니다.",
    "Token {step}, ‘{token}’, is predicted. Without a cache, all {read} tokens are computed; with one, only ‘{last}’. So far there are {factor} times as many multiplications without a cache.",
  ],

  "online.title": ["온라인 소프트맥스", "Online softmax"],
  "online.size": ["타일 크기", "tile size"],
  "online.keys": ["키 {n}개", "{n} keys"],
  "online.tile": ["타일", "tile"],
  "online.rows": ["위: 점수, 아래: 값", "above: scores, below: values"],
  "online.before": ["전", "before"],
  "online.factor": ["보정", "correction"],
  "online.after": ["후", "after"],
  "online.largest": ["가장 큰 점수", "largest score"],
  "online.total": ["지수의 합", "sum of exponentials"],
  "online.gathered": ["지수 × 값의 합", "… times values"],
  "online.result": ["지금까지의 결과", "result so far"],
  "online.begin": [
    "키를 타일 단위로 읽습니다. 남기는 것은 가장 큰 점수와 두 합뿐입니다.",
    "Keys are read a tile at a time. Only the largest score and two sums are kept.",
  ],
  "online.first": ["첫 타일입니다. 가장 큰 점수는 {now}입니다.", "The first tile; its largest score is {now}."],
  "online.grown": [
    "가장 큰 점수가 커졌으므로({old} → {now}) 이전의 두 합에 e^({old} − {now})를 곱합니다.",
    "The largest score grows from {old} to {now}, so both older sums are multiplied by e^({old} − {now}).",
  ],
  "online.same": [
    "가장 큰 점수({now})는 그대로이므로 보정하지 않습니다.",
    "The largest score stays {now}, so nothing is corrected.",
  ],
  "online.said": [
    "키 {seen}개의 결과는 {result}이고, 한꺼번에 계산한 소프트맥스로는 {plain}입니다.",
    "The result for {seen} keys is {result}; the plain softmax gives {plain}.",
  ],
  "online.end": [
    "모든 키를 읽은 결과는 {result}이고, 한꺼번에 계산한 소프트맥스로는 {plain}입니다.",
    "The result for all keys is {result}; the plain softmax gives {plain}.",
  ],

  "training.title": ["학습 한 스텝", "One step of training"],
  "training.rate": ["학습률", "learning rate"],
  "training.step": ["{n}번째 · {part}/{parts}", "step {n} · {part}/{parts}"],
  "training.forward": ["순전파: 파라미터 E, W와 예측", "Forward: parameters E, W and the prediction"],
  "training.updated": ["갱신한 파라미터와 새 예측", "Updated parameters and the new prediction"],
  "training.backward": ["역전파: 손실 L의 기울기", "Backward: gradients of the loss L"],
  "training.logit": ["로짓", "logit"],
  "training.probability": ["확률", "prob."],
  "training.slope": ["∂L/∂로짓", "∂L/∂logit"],
  "training.loss": ["손실 L = {loss}", "loss L = {loss}"],
  "training.phase0": [
    "입력은 ‘{token}’, 정답은 ‘{target}’입니다. 임베딩 E에서 ‘{token}’의 행 x = ({x})를 꺼냅니다.",
    "The input is ‘{token}’ and the target ‘{target}’. The row of ‘{token}’ in the embedding E is x = ({x}).",
  ],
  "training.phase1": ["로짓은 x와 W의 각 행의 내적입니다.", "Each logit is the dot product of x with one row of W."],
  "training.phase2": [
    "소프트맥스는 정답 ‘{target}’에 {probability}를 줍니다. 손실은 −ln {probability} = {loss}입니다.",
    "The softmax gives the target ‘{target}’ {probability}. The loss is −ln {probability} = {loss}.",
  ],
  "training.phase3": [
    "로짓의 기울기는 확률 − 정답(1 또는 0)이므로 ‘{target}’에서만 음수({slope})입니다. 여기에 x를 곱하면 W의, W를 곱하면 x의 기울기가 됩니다.",
    "The gradient of a logit is its probability minus 1 or 0, so it is negative only at ‘{target}’ ({slope}). Times x it gives the gradient of W, and times W that of x.",
  ],
  "training.phase4": [
    "파라미터에서 {rate} × 기울기를 뺍니다. 손실은 {before} → {after}입니다. 변화는 {change}이고, 기울기로 예상한 변화는 {expected}입니다.",
    "{rate} × the gradient is subtracted from each parameter. The loss goes from {before} to {after}, a change of {change}. The gradient predicts {expected}.",
  ],
});
