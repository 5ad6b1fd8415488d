// Every word that the viewer shows, in Korean and English. A view never writes a label of its own: it asks t("key").
// Each entry is [Korean, English]. {name} in an entry is replaced by the value given under that name.

import { defineWords } from "../base/words.js";

defineWords({
  // --- the page ---
  "page.title": ["{model} 분석 · jumok", "Inside {model} · jumok"],
  skipToView: ["그림으로 바로 가기", "Skip to the picture"],
  language: ["English", "한국어"],
  "language.about": ["영어로 전환", "Show in Korean"],
  theme: ["테마", "Theme"],
  help: ["도움말", "Help"],
  close: ["닫기", "Close"],
  options: ["보기 설정", "Options"],
  notes: ["참고", "Notes"],
  tools: ["도구", "Tools"],
  text: ["글", "Text"],
  none: ["없음", "none"],

  // --- the model, in the header ---
  "kind.gpt": ["GPT · 다음 토큰 예측", "GPT · predicts the next token"],
  "kind.bert": ["BERT · 마스킹된 토큰 예측", "BERT · fills in masked tokens"],
  "kind.encoder-decoder": ["인코더–디코더", "encoder–decoder"],
  "fact.layers": ["층 {n}개", "{n} layers"],
  "fact.layersBoth": ["인코더 {n}층, 디코더 {m}층", "{n} encoder and {m} decoder layers"],
  "fact.heads": ["헤드 {n}개", "{n} heads"],
  "fact.kvHeads": ["헤드 {n}개(키·값 {m}개)", "{n} heads ({m} for keys and values)"],
  "fact.parameters": ["파라미터 {n}개", "{n} parameters"],
  "fact.tokens": ["토큰 {n}개", "{n} tokens"],
  "fact.tokensGenerated": ["토큰 {n}개(생성 {m}개)", "{n} tokens ({m} generated)"],
  "fact.tokensBoth": ["소스 {n}토큰, 타깃 {m}토큰", "{n} source and {m} target tokens"],

  // --- the views: tab, and one line on what it shows ---
  views: ["보기", "Views"],
  "tab.heads": ["헤드", "Heads"],
  "tab.model": ["전체 모델", "Model"],
  "tab.neurons": ["뉴런", "Neurons"],
  "tab.matrix": ["행렬", "Matrix"],
  "tab.text": ["글과 예측", "Text"],
  "tab.cross": ["교차 어텐션", "Cross-attention"],
  "about.heads": [
    "한 층에 있는 헤드들의 어텐션 가중치를 선으로 표시합니다. 선이 굵을수록 가중치가 큽니다. 토큰을 가리키거나 눌러 보세요.",
    "The weights of the heads of one layer, as lines. A thicker line is a larger weight. Point at a token, or tap it.",
  ],
  "about.model": [
    "모든 층과 헤드의 어텐션 가중치를 표시합니다. 그림 하나가 헤드 하나입니다. 클릭하면 헤드를 선택하고, 두 번 클릭하면 확대합니다.",
    "Every head of every layer, one picture for each. Click to select a head, double-click to enlarge it.",
  ],
  "about.neurons": [
    "가중치 하나를 계산하는 과정입니다. 쿼리 q와 키 k를 원소별로 곱하여 더하고, √D로 나눈 뒤 소프트맥스를 적용합니다.",
    "How a weight is computed: query q times key k, element by element, summed, divided by √D, then softmax.",
  ],
  "about.matrix": [
    "헤드 하나의 모든 어텐션 가중치를 행렬로 표시합니다. 행은 쿼리 토큰, 열은 키 토큰입니다.",
    "All attention weights of one head as a matrix. Rows are query tokens, columns are key tokens.",
  ],
  "about.text": [
    "토큰마다 정보량을 표시합니다. 색이 진할수록 모델이 예상하지 못한 토큰입니다. 토큰을 클릭하면 예측 후보를 표시합니다.",
    "The surprise of each token. The deeper the colour, the less the model expected it. Click a token for its candidates.",
  ],
  "about.textHidden": [
    "토큰을 일곱 개마다 하나씩 차례로 마스킹하여 예측한 결과입니다. 색이 진할수록 정보량이 큽니다. 토큰을 클릭하면 "
      + "예측 후보를 표시합니다.",
    "Every seventh token was masked at once, in turn, and predicted from the rest. Deeper: more surprise. Click a token.",
  ],
  "about.cross": [
    "디코더가 다음 토큰을 예측할 때, 타깃 토큰(왼쪽)이 소스의 각 토큰(오른쪽)에 주는 가중치를 표시합니다.",
    "The weight that each target token (left) gives to each source token (right) when the decoder predicts the next one.",
  ],

  // --- choosers and other controls ---
  block: ["어텐션", "Attention"],
  "block.self": ["셀프 어텐션", "Self-attention"],
  "block.encoder": ["인코더", "Encoder"],
  "block.decoder": ["디코더", "Decoder"],
  "block.cross": ["교차 어텐션", "Cross-attention"],
  layer: ["층", "Layer"],
  head: ["헤드", "Head"],
  heads: ["헤드", "Heads"],
  "layer.n": ["층 {n}", "Layer {n}"],
  "head.n": ["헤드 {n}", "Head {n}"],
  place: ["층 {layer} · 헤드 {head}", "Layer {layer} · head {head}"],
  "layer.previous": ["이전 층", "Previous layer"],
  "layer.next": ["다음 층", "Next layer"],
  "head.previous": ["이전 헤드", "Previous head"],
  "head.next": ["다음 헤드", "Next head"],
  "heads.all": ["모든 헤드", "All heads"],
  "heads.none": ["모두 끄기", "None"],
  "heads.hint": ["{n}번 헤드 켜기/끄기 (두 번 클릭: 이 헤드만)", "Toggle head {n} (double-click: only this one)"],
  "head.switchOff": ["헤드 {layer}.{head} 끄기", "Switch head {layer}.{head} off"],
  "head.switchOn": ["헤드 {layer}.{head} 켜기", "Switch head {layer}.{head} on"],
  "head.switch.about": [
    "모델에서 이 헤드의 출력을 0으로 바꾸고 다시 계산합니다.",
    "Set the output of this head to zero in the model and compute again.",
  ],
  "head.isOff": ["꺼짐", "switched off"],
  "key.headSwitch": ["선택한 헤드를 모델에서 끄기/켜기", "Switch the chosen head of the model off or on"],
  group: ["묶음 단위", "Group by"],
  "group.token": ["토큰", "Token"],
  "group.character": ["글자", "Character"],
  "group.word": ["어절", "Word"],
  "group.note": [
    "토큰을 묶으면 키 쪽의 가중치는 더하고 쿼리 쪽의 가중치는 평균합니다. 따라서 행의 합은 1로 유지됩니다.",
    "Weights to a group are summed, weights from a group are averaged, so each row still sums to one.",
  ],
  zoomIn: ["확대", "Zoom in"],
  zoomOut: ["축소", "Zoom out"],
  fit: ["전체 보기", "Fit"],
  "threshold.about": ["{value}보다 작은 가중치는 표시하지 않습니다.", "Weights below {value} are not drawn."],
  "link.copy": ["링크 복사", "Copy link"],
  "link.copied": ["현재 화면의 링크를 복사했습니다.", "A link to this very view was copied."],
  "link.failed": [
    "복사하지 못했습니다. 주소창의 주소를 사용하세요.",
    "Could not copy. Use the address in the address bar.",
  ],
  "export.svg": ["SVG로 저장", "Save as SVG"],
  "export.png": ["PNG로 저장", "Save as PNG"],
  "export.failed": ["저장하지 못했습니다: {detail}", "Could not save: {detail}"],
  "export.saved": ["{file}에 저장했습니다.", "Saved as {file}."],
  "table.show": ["표로 보기", "Show as a table"],
  "table.hide": ["표 숨기기", "Hide the table"],
  "table.caption": ["쿼리 {token}의 어텐션 가중치", "Attention weights of the query {token}"],
  "table.position": ["위치", "Position"],
  "table.token": ["토큰", "Token"],
  "table.empty": ["먼저 토큰을 선택하세요.", "Choose a token first."],
  "canvas.label": ["{view} 보기, {place}", "{view} view, {place}"],

  // --- what is read off a picture ---
  query: ["쿼리", "Query"],
  key: ["키", "Key"],
  queries: ["쿼리", "queries"],
  keys: ["키", "keys"],
  looks: ["쿼리 토큰", "query token"],
  looked: ["키 토큰", "key token"],
  source: ["소스", "Source"],
  target: ["타깃", "Target"],
  token: ["토큰", "Token"],
  position: ["위치", "Position"],
  "position.n": ["{n}번 위치", "position {n}"],
  weight: ["가중치", "Weight"],
  "weight.mean": ["가중치 평균", "Mean weight"],
  sum: ["행의 합", "Row sum"],
  received: ["받은 가중치", "Weight received"],
  masked: ["마스킹됨", "masked"],
  "masked.future": ["뒤에 오는 토큰이므로 마스킹됩니다.", "It comes later, so it is masked."],
  "legend.weight": ["어텐션 가중치", "attention weight"],
  "legend.root": ["색의 진하기는 가중치의 제곱근에 비례합니다.", "Colour grows with the square root of the weight."],
  hoverHint: ["토큰을 가리키거나 누르세요.", "Point at a token, or tap it to pin it."],
  "weight.rounded": [
    "가중치는 반올림하여 저장했습니다. 반올림 오차는 행마다 평균 {mean}, 가중치 하나마다 최대 {most}입니다. 정확한 값이 필요하면 "
      + "--exact로 페이지를 다시 만드세요.",
    "Weights are rounded. The error is {mean} of a row on average, and {most} of a weight at most. Make the page "
      + "again with --exact to keep them exactly.",
  ],

  // --- head view, and the row under inspection ---
  "heads.list": ["헤드 {list}", "heads {list}"],
  "heads.empty": ["켜진 헤드가 없습니다. 번호를 클릭하여 켜세요.", "No head is on. Click a number to switch one on."],
  "inspect.query": ["쿼리 {token}의 가중치", "Weights of the query {token}"],
  "inspect.key": ["키 {token}의 가중치", "Weights of the key {token}"],
  "inspect.rest": ["나머지 {n}개 토큰의 가중치 합: {share}.", "The other {n} visible tokens share {share}."],
  "inspect.received": [
    "이 토큰을 참조할 수 있는 쿼리 {n}개에서 받은 가중치의 합: {sum}.",
    "{n} queries can attend to this token. Their weights on it add up to {sum}.",
  ],
  "inspect.nothing": ["이 토큰의 가중치는 모두 0입니다.", "All weights of this token are 0."],
  "inspect.mean": ["켜진 헤드 {n}개의 평균입니다.", "Mean of the {n} heads shown."],
  "tip.looksAt": ["헤드마다 가중치가 가장 큰 키", "The key with the largest weight, for each head"],
  "tip.lookedAtBy": [
    "헤드마다 이 토큰의 가중치가 가장 큰 쿼리",
    "The query with the largest weight on this token, for each head",
  ],
  "summary.query": [
    "쿼리 {token}의 가중치가 큰 키: {list}.",
    "Keys with the largest weights of the query {token}: {list}.",
  ],
  "summary.queryNone": [
    "쿼리 {token}의 가중치는 고르게 퍼져 있습니다. 최댓값은 {share}입니다.",
    "The weights of the query {token} are spread evenly. The largest is {share}.",
  ],
  "summary.key": [
    "키 {token}의 가중치가 큰 쿼리: {list}.",
    "Queries with the largest weights on the key {token}: {list}.",
  ],
  "summary.keyNone": [
    "키 {token}의 가중치가 특별히 큰 쿼리는 없습니다. 최댓값은 {share}입니다.",
    "No query has a large weight on the key {token}. The largest is {share}.",
  ],
  "table.captionKey": ["키 {token}의 어텐션 가중치", "Attention weights of the key {token}"],
  "matrix.looks": ["쿼리 ↓", "queries ↓"],
  "matrix.looked": ["키 →", "keys →"],
  "heads.generated": [
    "세로줄은 모델이 생성한 토큰을 표시합니다.",
    "The vertical bar marks the tokens that the model generated.",
  ],

  // --- the numbers of a head ---
  "stat.entropy": ["엔트로피", "Entropy"],
  "stat.distance": ["거리", "Distance"],
  "stat.first": ["첫 토큰", "First token"],
  "stat.previous": ["바로 앞 토큰", "Previous token"],
  "stat.self": ["자기 자신", "Same token"],
  "stat.entropyAbout": [
    "가중치 분포의 엔트로피 (한 토큰의 가중치가 1이면 0, 단위: nats)",
    "Entropy of the weights (0: one token has the weight 1), in nats",
  ],
  "stat.distanceAbout": [
    "가중치로 평균한 쿼리와 키 사이의 거리 (토큰 수)",
    "Distance between query and key in tokens, averaged with the weights",
  ],
  "stat.firstAbout": ["첫 토큰에 대한 가중치의 평균", "Mean weight on the first token"],
  "stat.previousAbout": ["바로 앞 토큰에 대한 가중치의 평균", "Mean weight on the token just before"],
  "stat.selfAbout": ["자기 자신에 대한 가중치의 평균", "Mean weight on the token itself"],
  "unit.nats": ["{n} nats", "{n} nats"],

  // --- model view ---
  sort: ["정렬", "Sort"],
  "sort.order": ["층과 헤드 순서", "In order"],
  tint: ["색으로 표시", "Tint"],
  "tint.none": ["없음", "None"],
  "model.values": ["값 표시", "Show values"],
  "model.open": ["헤드 보기로 열기", "Open in Heads"],
  "model.axes": ["세로축은 쿼리, 가로축은 키", "Queries run down, keys run across"],

  // --- neuron view ---
  "neuron.score": ["점수", "Score"],
  "neuron.softmax": ["소프트맥스", "Softmax"],
  "neuron.positive": ["양수", "positive"],
  "neuron.negative": ["음수", "negative"],
  "neuron.dimension": ["{n}번 차원", "dimension {n}"],
  "neuron.headShared": [
    "이 헤드는 다른 쿼리 헤드와 키·값을 공유합니다(키·값 헤드 {n}).",
    "This head shares its keys and values with other query heads (key-value head {n}).",
  ],
  "neuron.rotated": [
    "q와 k는 내적에 쓰는 값입니다. 모델에 정규화와 위치 회전이 있으면 모두 적용한 뒤의 값입니다.",
    "q and k as they enter the product: after normalisation and rotation, where the model has them.",
  ],
  "neuron.rounding": [
    "q와 k는 {n}비트로 저장했으므로, 다시 계산한 가중치가 저장된 가중치와 조금 다를 수 있습니다.",
    "q and k are stored in {n} bits, so a recomputed weight may differ slightly from the stored one.",
  ],
  "neuron.stored": ["저장된 가중치", "stored weight"],
  "neuron.missingTitle": ["이 파일에는 이 층의 q와 k가 없습니다", "This file holds no q and k for this layer"],
  "neuron.missingWhy": [
    "파일 크기를 줄이기 위해 {block} 층 {layer}의 벡터는 저장하지 않았습니다.",
    "The vectors of {block}, layer {layer}, were left out to keep the file small.",
  ],
  "neuron.missingHow": [
    "모두 저장하려면 다음 명령으로 페이지를 다시 만드세요:",
    "To keep all of them, make the page again with:",
  ],
  "neuron.missingLayers": ["파일에 있는 층: {layers}", "Layers in this file: {layers}"],
  "neuron.goToLayer": ["층 {n} 보기", "Go to layer {n}"],
  "neuron.grouping": [
    "q와 k는 토큰마다 하나씩 있으므로, 뉴런 보기에서는 토큰을 묶지 않습니다.",
    "This view always shows single tokens, since each token has its own q and k.",
  ],

  // --- text view ---
  surprise: ["정보량", "Surprise"],
  "surprise.about": ["정보량 = −ln 확률 (nats)", "surprise = −ln probability, in nats"],
  "surprise.low": ["낮음", "expected"],
  "surprise.high": ["높음", "surprising"],
  probability: ["확률", "Probability"],
  rank: ["순위", "Rank"],
  "rank.n": ["{n}위", "no. {n}"],
  nats: ["nats", "nats"],
  "text.candidates": ["예측 후보", "What the model would have put"],
  "text.candidatesFor": ["{n}번 위치의 예측 후보", "Candidates for position {n}"],
  "text.here": ["이 위치를 마스킹했을 때 예측한 토큰", "What the model predicts here when this token is masked"],
  "text.next": ["앞의 토큰으로 예측한 토큰", "Predicted from the text before it"],
  "text.after": ["다음 토큰", "What comes next"],
  "text.afterAbout": ["글 다음에 올 토큰의 예측", "What the model would write after the text"],
  "text.notPredicted": [
    "앞에 토큰이 없으므로 예측하지 않았습니다.",
    "Nothing comes before this token, so it was not predicted.",
  ],
  "text.notPredictedSpecial": ["이 토큰은 예측하지 않았습니다.", "This token was not predicted."],
  "text.actual": ["실제 토큰", "the actual token"],
  "text.generated": ["생성한 글", "Generated"],
  "text.mean": ["평균 정보량", "Mean surprise"],
  "text.meanValue": ["토큰당 {n} nats", "{n} nats per token"],
  "text.missingTitle": ["이 파일에는 예측이 없습니다", "No predictions in this file"],
  "text.missingWhy": [
    "이 모델에는 토큰을 예측하는 출력층이 없으므로 글만 표시합니다.",
    "This model has no output layer that predicts tokens, so only the text is shown.",
  ],
  lens: ["로짓 렌즈", "Logit lens"],
  "lens.about": [
    "각 층의 출력에 바로 출력층을 적용했을 때의 예측입니다. 색이 진할수록 확률이 높습니다. 테두리는 정답을 표시합니다.",
    "What the model would predict if it stopped at each layer. Stronger: surer. Outlined: correct.",
  ],
  "lens.embedding": ["임베딩", "embedding"],
  "lens.layer": ["층 {n}", "layer {n}"],
  "lens.actual": ["실제 토큰 {token}의 확률", "Probability of the actual token {token}"],
  rollout: ["어텐션 롤아웃", "Attention rollout"],
  "rollout.about": [
    "선택한 토큰의 정보가 어느 입력 토큰에서 왔는지, 모든 층의 어텐션을 곱하여 추정한 값입니다.",
    "Where the information at the chosen token came from: attention multiplied through all layers, an estimate.",
  ],
  "rollout.share": ["롤아웃", "Rollout"],
  ranking: ["이 글에서 중요한 헤드", "Heads that matter for this text"],
  "ranking.about": [
    "헤드를 하나씩 끄고 손실의 변화를 측정한 값입니다. 손실이 많이 커질수록 이 글에서 중요한 헤드입니다. 클릭하면 헤드를 선택합니다.",
    "Each head was switched off in turn. The more the loss rises, the more this text needs it. Click to select it.",
  ],
  "ranking.delta": ["손실 변화", "Change of loss"],
  "ranking.baseline": ["모두 켰을 때 토큰당 {n} nats", "All heads on: {n} nats per token"],
  "ranking.more": ["모두 보기 ({n}개)", "Show all {n}"],
  "ranking.fewer": ["상위만 보기", "Show the top only"],
  "ranking.deltaAbout": [
    "이 헤드를 껐을 때 토큰당 손실의 변화 (nats)",
    "How much the loss per token changes when this head is switched off, in nats",
  ],
  "induction.about": [
    "무작위 토큰을 반복한 글에서, 앞에 나온 같은 토큰의 다음 토큰에 대한 가중치",
    "On random tokens that repeat: weight on the one that followed the same token before",
  ],
  "induction.previousAbout": [
    "무작위 토큰을 반복한 글에서, 바로 앞 토큰에 대한 가중치",
    "On random tokens that repeat: weight on the token just before",
  ],
  induction: ["인덕션 점수 (반복)", "Induction (repeats)"],
  "induction.previous": ["앞 토큰 점수 (반복)", "Previous (repeats)"],

  // --- keyboard help ---
  "help.title": ["키보드와 마우스", "Keyboard and mouse"],
  "key.arrows": ["토큰 선택", "Choose a token"],
  "key.layer": ["층 변경", "Change the layer"],
  "key.head": ["헤드 변경", "Change the head"],
  "key.views": ["보기 변경", "Change the view"],
  "key.group": ["묶음 단위 변경", "Change the grouping"],
  "key.theme": ["밝은 테마, 어두운 테마", "Light or dark"],
  "key.language": ["한국어, 영어", "Korean or English"],
  "key.save": ["SVG로 저장", "Save as SVG"],
  "key.help": ["이 도움말", "This help"],
  "key.escape": ["선택 해제, 닫기", "Clear the selection, close"],
  "key.zoom": ["행렬 확대와 이동", "Zoom and move in the matrix"],
  "help.hover": ["토큰을 가리키면 값을 표시하고, 누르면 고정합니다.", "Point for numbers, click or tap to pin."],
  "help.reading": ["읽는 법", "How to read it"],
  "help.readingText": [
    "어텐션 가중치는 각 토큰(쿼리)이 다른 토큰(키)을 참조하는 비율입니다. 한 쿼리의 가중치를 모두 더하면 1입니다. 층마다 헤드가 여러 개 "
      + "있고, 헤드마다 가중치가 다릅니다.",
    "Attention weights say how much each token (the query) attends to the other tokens (the keys). The weights of a "
      + "query add up to 1. Each layer has several heads, and each head has other weights.",
  ],
  "help.caution": [
    "어텐션 가중치는 모델이 참조한 위치를 나타냅니다. 어텐션 가중치만으로 출력의 이유를 설명할 수는 없습니다.",
    "Attention weights show which tokens a model attends to. They alone do not explain its output.",
  ],

  // --- what can go wrong; shown in both languages at once, since no choice may have been made yet ---
  "error.title": ["페이지를 표시할 수 없습니다", "This page cannot be shown"],
  "error.format": [
    "이 파일의 데이터는 jumok-trace 형식이 아닙니다.",
    "The data in this file are not in the format jumok-trace.",
  ],
  "error.version": [
    "데이터 형식의 버전은 {version}이고, 이 페이지가 지원하는 버전은 {known}입니다. 같은 버전의 jumok으로 페이지를 다시 만드세요.",
    "The data have version {version}, but this page reads version {known}. Make it again with the same jumok.",
  ],
  "error.stream": [
    "이 브라우저에서는 데이터의 압축을 풀 수 없습니다. Chrome 103, Firefox 113, Safari 16.4 이상을 사용하세요.",
    "This browser is too old to unpack the data. Use Chrome 103, Firefox 113, Safari 16.4 or later.",
  ],
  "error.data": ["데이터가 손상되었습니다: {detail}", "The data are damaged: {detail}"],
  "error.unknown": ["예상하지 못한 오류: {detail}", "Unexpected error: {detail}"],
  "error.remedy": ["jumok view로 페이지를 다시 만드세요.", "Try making the page again with jumok view."],
});
