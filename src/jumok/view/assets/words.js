// Every word the page shows, in Korean and English. A view never writes a label of its own: it asks t("key").
// Each entry is [Korean, English], so that a missing translation is visible here and nowhere else.
// {name} in an entry is replaced by the value given under that name.

const WORDS = {
  // --- the page ---
  "page.title": ["{model} 들여다보기 · jumok", "Inside {model} · jumok"],
  skipToView: ["그림으로 바로 가기", "Skip to the picture"],
  language: ["English", "한국어"],
  "language.about": ["영어로 보기", "Show in Korean"],
  theme: ["화면 색", "Theme"],
  help: ["도움말", "Help"],
  close: ["닫기", "Close"],
  options: ["보기 설정", "Options"],
  notes: ["참고", "Notes"],
  tools: ["도구", "Tools"],
  text: ["글", "Text"],
  none: ["없음", "none"],

  // --- the model, in the header ---
  "kind.gpt": ["GPT · 다음 토큰 예측", "GPT · predicts the next token"],
  "kind.bert": ["BERT · 가린 토큰 맞히기", "BERT · fills in masked tokens"],
  "kind.encoder-decoder": ["인코더–디코더", "encoder–decoder"],
  "fact.layers": ["층 {n}개", "{n} layers"],
  "fact.layersBoth": ["인코더 {n}층, 디코더 {m}층", "{n} encoder and {m} decoder layers"],
  "fact.heads": ["헤드 {n}개", "{n} heads"],
  "fact.kvHeads": ["헤드 {n}개(키·값 {m}개)", "{n} heads ({m} for keys and values)"],
  "fact.parameters": ["파라미터 {n}개", "{n} parameters"],
  "fact.tokens": ["토큰 {n}개", "{n} tokens"],
  "fact.tokensGenerated": ["토큰 {n}개(생성 {m}개)", "{n} tokens ({m} generated)"],
  "fact.tokensBoth": ["원문 {n}토큰, 출력 {m}토큰", "{n} source and {m} target tokens"],

  // --- the views: tab, and one line on what it shows ---
  views: ["보기", "Views"],
  "tab.heads": ["헤드", "Heads"],
  "tab.model": ["전체 모델", "Model"],
  "tab.neurons": ["뉴런", "Neurons"],
  "tab.matrix": ["행렬", "Matrix"],
  "tab.text": ["글과 예측", "Text"],
  "tab.cross": ["교차 어텐션", "Cross-attention"],
  "about.heads": [
    "한 층의 헤드들이 어디를 보는지 선으로 보여 줘요. 선이 굵을수록 많이 봐요. 토큰 위에 마우스를 올려 보세요.",
    "Where the heads of one layer look, as lines: the thicker, the more. Hover over a token.",
  ],
  "about.model": [
    "모든 층과 헤드의 어텐션을 한눈에 봐요. 그림 하나가 헤드 하나예요. 누르면 그 헤드를 고르고, 두 번 누르면 크게 봐요.",
    "Every layer and head at a glance, one picture per head. Click to select a head, double-click to look closer.",
  ],
  "about.neurons": [
    "가중치 하나가 어떻게 나오는지 따라가요. 질의 q와 키 k를 칸마다 곱해 더하고 √D로 나눈 뒤 소프트맥스를 거쳐요.",
    "How a weight comes about: query q times key k, element by element, summed, divided by √D, then softmax.",
  ],
  "about.matrix": [
    "헤드 하나의 어텐션 가중치를 모두 표로 봐요. 행은 보는 토큰(질의), 열은 보이는 토큰(키)이에요.",
    "All weights of one head. Rows are the tokens that look (queries), columns the tokens looked at (keys).",
  ],
  "about.text": [
    "모델이 이 글을 얼마나 예상했는지 봐요. 색이 진할수록 뜻밖의 토큰이에요. 토큰을 누르면 후보들이 나와요.",
    "How well the model expected this text. The stronger the colour, the greater the surprise. Click a token.",
  ],
  "about.textHidden": [
    "토큰을 일곱 개에 하나씩 돌아가며 가리고 맞히게 했어요. 색이 진할수록 뜻밖의 토큰이에요. 토큰을 누르면 후보들이 나와요.",
    "Every seventh token was hidden at once, in turn, and guessed from the rest. Stronger: more surprising. Click a token.",
  ],
  "about.cross": [
    "디코더가 토큰(왼쪽)까지 읽고 다음 토큰을 예측할 때 원문의 어느 토큰(오른쪽)을 보는지 보여 줘요.",
    "Which source tokens (right) the decoder looks at as it reads a token (left) and predicts the next one.",
  ],

  // --- choosers and other controls ---
  block: ["어느 어텐션", "Attention"],
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
  "layer.previous": ["앞 층", "Previous layer"],
  "layer.next": ["다음 층", "Next layer"],
  "head.previous": ["앞 헤드", "Previous head"],
  "head.next": ["다음 헤드", "Next head"],
  "heads.all": ["모든 헤드", "All heads"],
  "heads.none": ["모두 끄기", "None"],
  "heads.hint": [
    "{n}번 헤드 켜고 끄기 (두 번 누르면 이 헤드만)",
    "Toggle head {n} (double-click: only this one)",
  ],
  group: ["묶기", "Group by"],
  "group.token": ["토큰", "Token"],
  "group.character": ["글자", "Character"],
  "group.word": ["어절", "Word"],
  "group.note": [
    "토큰을 묶으면 묶음으로 가는 가중치는 더하고, 묶음에서 나가는 가중치는 평균 내요. 그래서 행의 합은 여전히 1이에요.",
    "Weights to a group are summed, weights from a group are averaged, so each row still sums to one.",
  ],
  zoomIn: ["확대", "Zoom in"],
  zoomOut: ["축소", "Zoom out"],
  fit: ["전체 보기", "Fit"],
  "threshold.about": ["{value}보다 작은 가중치는 그리지 않아요.", "Weights below {value} are not drawn."],
  "link.copy": ["링크 복사", "Copy link"],
  "link.copied": ["지금 보는 화면의 링크를 복사했어요.", "A link to this very view was copied."],
  "link.failed": ["복사하지 못했어요. 주소창의 주소를 쓰세요.", "Could not copy. Use the address in the address bar."],
  "export.svg": ["SVG로 저장", "Save as SVG"],
  "export.png": ["PNG로 저장", "Save as PNG"],
  "export.failed": ["저장하지 못했어요: {detail}", "Could not save: {detail}"],
  "export.saved": ["{file}에 저장했어요.", "Saved as {file}."],
  "table.show": ["표로 보기", "Show as a table"],
  "table.hide": ["표 숨기기", "Hide the table"],
  "table.caption": [
    "{token} 토큰이 어디를 얼마나 보는지",
    "Where the token {token} looks, and how much",
  ],
  "table.position": ["위치", "Position"],
  "table.token": ["토큰", "Token"],
  "table.empty": ["먼저 토큰을 고르세요.", "Choose a token first."],
  "canvas.label": ["{view} 보기, {place}", "{view} view, {place}"],

  // --- what is read off a picture ---
  query: ["질의", "Query"],
  key: ["키", "Key"],
  queries: ["질의", "queries"],
  keys: ["키", "keys"],
  looks: ["보는 토큰 (질의)", "looks (query)"],
  looked: ["보이는 토큰 (키)", "is looked at (key)"],
  source: ["원문", "Source"],
  target: ["출력", "Target"],
  token: ["토큰", "Token"],
  position: ["위치", "Position"],
  "position.n": ["{n}번 위치", "position {n}"],
  weight: ["가중치", "Weight"],
  "weight.mean": ["가중치 평균", "Mean weight"],
  sum: ["행의 합", "Row sum"],
  received: ["받은 눈길", "Looks received"],
  masked: ["가려진 자리", "masked"],
  "masked.future": ["뒤에 오는 토큰은 볼 수 없어요.", "It comes later, so it cannot be seen."],
  "legend.weight": ["어텐션 가중치", "attention weight"],
  "legend.root": ["색은 가중치의 제곱근에 비례해요.", "Colour grows with the square root of the weight."],
  hoverHint: ["토큰에 마우스를 올리거나 누르세요.", "Hover over a token, or click to pin it."],
  "weight.rounded": [
    "가중치는 반올림해 담았어요. 행 하나에서 평균 {mean}가 제자리를 벗어나고, 가중치 하나는 많아야 {most} 달라요. 정확한 값이 "
      + "필요하면 --exact로 다시 만드세요.",
    "Weights are rounded: on average {mean} of a row is misplaced, and a weight is off by {most} at most. Make the page "
      + "again with --exact to keep them exactly.",
  ],

  // --- head view, and the row under inspection ---
  "heads.list": ["헤드 {list}", "heads {list}"],
  "heads.empty": ["켜진 헤드가 없어요. 번호를 눌러 켜세요.", "No head is on. Click a number to switch one on."],
  "inspect.query": ["{token} 토큰이 보는 곳", "{token} looks at"],
  "inspect.key": ["{token} 토큰을 보는 곳", "{token} is looked at by"],
  "inspect.rest": ["나머지 {n}개 토큰에 {share}가 가요.", "The other {n} visible tokens share {share}."],
  "inspect.received": [
    "이 토큰을 볼 수 있는 토큰 {n}개에서 받은 가중치의 합: {sum}.",
    "From the {n} tokens that may look at it, it receives {sum} in all.",
  ],
  "inspect.nothing": ["이 토큰은 아무 데도 보지 않아요.", "This token looks nowhere."],
  "inspect.mean": ["켜진 헤드 {n}개의 평균이에요.", "Mean of the {n} heads shown."],
  "tip.looksAt": ["헤드마다 가장 많이 보는 토큰", "Where each head looks most"],
  "tip.lookedAtBy": ["헤드마다 이 토큰을 가장 많이 보는 토큰", "Who looks here most, in each head"],
  "summary.query": ["{token} 토큰이 많이 보는 토큰: {list}.", "{token} looks most at {list}."],
  "summary.queryNone": [
    "{token} 토큰은 특별히 많이 보는 토큰이 없어요. 가장 큰 가중치도 {share}예요.",
    "{token} looks at no token in particular: the largest weight is {share}.",
  ],
  "summary.key": ["{token} 토큰을 많이 보는 토큰: {list}.", "{token} is looked at most by {list}."],
  "summary.keyNone": [
    "{token} 토큰을 특별히 많이 보는 토큰이 없어요. 가장 큰 가중치도 {share}예요.",
    "No token looks at {token} in particular: the largest weight is {share}.",
  ],
  "table.captionKey": ["{token} 토큰을 어디서 얼마나 보는지", "Who looks at the token {token}, and how much"],
  "matrix.looks": ["보는 토큰 ↓", "looks ↓"],
  "matrix.looked": ["보이는 토큰 →", "is looked at →"],
  "heads.generated": ["세로줄은 모델이 쓴 토큰이에요.", "The vertical bar marks what the model wrote."],

  // --- the numbers of a head ---
  "stat.entropy": ["엔트로피", "Entropy"],
  "stat.distance": ["거리", "Distance"],
  "stat.first": ["첫 토큰 보기", "Looks at first"],
  "stat.previous": ["바로 앞 보기", "Looks at previous"],
  "stat.self": ["자기 보기", "Looks at itself"],
  "stat.entropyAbout": [
    "눈길이 얼마나 흩어져 있는지 (0이면 한 곳만 봐요, 단위는 내트)",
    "How spread out the gaze is (0: one token only), in nats",
  ],
  "stat.distanceAbout": ["평균해서 몇 토큰 떨어진 곳을 보는지", "How many tokens away it looks, on average"],
  "stat.firstAbout": ["첫 토큰에 주는 가중치의 평균", "Mean weight on the first token"],
  "stat.previousAbout": ["바로 앞 토큰에 주는 가중치의 평균", "Mean weight on the token just before"],
  "stat.selfAbout": ["자기 자신에게 주는 가중치의 평균", "Mean weight on the token itself"],
  "unit.nats": ["{n} 내트", "{n} nats"],

  // --- model view ---
  sort: ["정렬", "Sort"],
  "sort.order": ["층과 헤드 순서", "In order"],
  tint: ["색으로 표시", "Tint"],
  "tint.none": ["없음", "None"],
  "model.values": ["값 표시", "Show values"],
  "model.open": ["헤드 보기로", "Open in Heads"],
  "model.axes": ["위에서 아래로 질의, 왼쪽에서 오른쪽으로 키", "Queries run down, keys run across"],

  // --- neuron view ---
  "neuron.score": ["점수", "Score"],
  "neuron.softmax": ["소프트맥스", "Softmax"],
  "neuron.positive": ["양수", "positive"],
  "neuron.negative": ["음수", "negative"],
  "neuron.dimension": ["{n}번 칸", "dimension {n}"],
  "neuron.headShared": [
    "이 헤드는 키와 값을 다른 질의 헤드와 나눠 써요(키·값 헤드 {n}).",
    "This head shares its keys and values with other query heads (key-value head {n}).",
  ],
  "neuron.rotated": [
    "q와 k는 정규화와 위치 회전까지 마친, 내적 바로 앞의 값이에요.",
    "q and k as they enter the product: after normalisation and rotation, where the model has them.",
  ],
  "neuron.rounding": [
    "q와 k를 {n}비트로 저장해서, 다시 계산한 값이 저장된 가중치와 조금 다를 수 있어요.",
    "q and k are stored in {n} bits, so a recomputed weight may differ slightly from the stored one.",
  ],
  "neuron.stored": ["저장된 가중치", "stored weight"],
  "neuron.missingTitle": ["이 층의 q와 k는 이 파일에 없어요", "This file holds no q and k for this layer"],
  "neuron.missingWhy": [
    "파일을 작게 하려고 {block} 층 {layer}의 벡터는 뺐어요.",
    "The vectors of {block}, layer {layer}, were left out to keep the file small.",
  ],
  "neuron.missingHow": ["모두 담으려면 이렇게 다시 만드세요:", "To keep all of them, make the page again with:"],
  "neuron.missingLayers": ["파일에 있는 층: {layers}", "Layers in this file: {layers}"],
  "neuron.goToLayer": ["층 {n} 보기", "Go to layer {n}"],
  "neuron.grouping": [
    "뉴런 보기는 언제나 토큰 하나하나를 보여 줘요. q와 k가 토큰마다 하나씩 있기 때문이에요.",
    "This view always shows single tokens, since each token has its own q and k.",
  ],

  // --- text view ---
  surprise: ["놀람", "Surprise"],
  "surprise.about": ["놀람 = −ln 확률 (내트)", "surprise = −ln probability, in nats"],
  "surprise.low": ["예상대로", "expected"],
  "surprise.high": ["뜻밖", "surprising"],
  probability: ["확률", "Probability"],
  rank: ["순위", "Rank"],
  "rank.n": ["{n}위", "no. {n}"],
  nats: ["내트", "nats"],
  "text.candidates": ["모델이 꼽은 후보", "What the model would have put"],
  "text.candidatesFor": ["{n}번 위치의 후보", "Candidates for position {n}"],
  "text.here": ["이 자리를 가렸을 때 모델이 꼽은 토큰", "What the model puts here when this place is hidden"],
  "text.next": ["앞 글을 보고 예측한 토큰", "Predicted from the text before it"],
  "text.after": ["이어서 올 토큰", "What comes next"],
  "text.afterAbout": ["글이 끝난 뒤에 모델이 쓰려는 토큰", "What the model would write after the text"],
  "text.notPredicted": [
    "이 토큰은 앞 글이 없어서 예측하지 않았어요.",
    "Nothing comes before this token, so it was not predicted.",
  ],
  "text.notPredictedSpecial": ["이 토큰은 예측하지 않았어요.", "This token was not predicted."],
  "text.actual": ["실제 토큰", "the actual token"],
  "text.generated": ["모델이 쓴 글", "Generated"],
  "text.mean": ["평균 놀람", "Mean surprise"],
  "text.meanValue": ["토큰당 {n} 내트", "{n} nats per token"],
  "text.missingTitle": ["예측이 들어 있지 않아요", "No predictions in this file"],
  "text.missingWhy": [
    "이 모델에는 토큰을 예측하는 출력층이 없어서, 글만 보여 줘요.",
    "This model has no output layer that predicts tokens, so only the text is shown.",
  ],
  lens: ["로짓 렌즈", "Logit lens"],
  "lens.about": [
    "층마다 거기서 멈췄다면 무엇을 예측했을지 보여 줘요. 색이 진할수록 확신해요. 테두리는 맞힌 칸이에요.",
    "What the model would predict if it stopped at each layer. Stronger: surer. Outlined: correct.",
  ],
  "lens.embedding": ["임베딩", "embedding"],
  "lens.layer": ["층 {n}", "layer {n}"],
  "lens.actual": ["실제 토큰 {token}의 확률", "Probability of the actual token {token}"],
  rollout: ["어텐션 롤아웃", "Attention rollout"],
  "rollout.about": [
    "고른 토큰에 닿는 정보가 처음에 어느 토큰에서 왔는지, 모든 층의 어텐션을 이어 곱해 어림한 값이에요.",
    "Where the information at the chosen token came from: attention multiplied through all layers, an estimate.",
  ],
  "rollout.share": ["롤아웃", "Rollout"],
  ranking: ["이 글에서 중요한 헤드", "Heads that matter for this text"],
  "ranking.about": [
    "헤드를 하나씩 끄고 손실이 얼마나 달라지는지 쟀어요. 많이 오를수록 이 글에 중요한 헤드예요. 누르면 그 헤드를 골라요.",
    "Each head was switched off in turn. The more the loss rises, the more this text needs it. Click to select it.",
  ],
  "ranking.delta": ["손실 변화", "Change of loss"],
  "ranking.baseline": ["모두 켰을 때 토큰당 {n} 내트", "All heads on: {n} nats per token"],
  "ranking.more": ["모두 보기 ({n}개)", "Show all {n}"],
  "ranking.fewer": ["위쪽만 보기", "Show the top only"],
  "ranking.deltaAbout": [
    "이 헤드를 껐을 때 토큰당 손실이 얼마나 달라지는지 (내트)",
    "How much the loss per token changes when this head is switched off, in nats",
  ],
  "induction.about": [
    "무작위 토큰을 두 번 되풀이한 글에서, 앞서 나온 같은 토큰의 바로 다음을 보는 정도",
    "On random tokens that repeat: weight on the one that followed the same token before",
  ],
  "induction.previousAbout": [
    "무작위 토큰을 되풀이한 글에서 바로 앞 토큰을 보는 정도",
    "On random tokens that repeat: weight on the token just before",
  ],
  induction: ["귀납 점수 (되풀이)", "Induction (repeats)"],
  "induction.previous": ["앞 토큰 점수 (되풀이)", "Previous (repeats)"],

  // --- keyboard help ---
  "help.title": ["키보드와 마우스", "Keyboard and mouse"],
  "key.arrows": ["토큰 고르기", "Choose a token"],
  "key.layer": ["층 바꾸기", "Change the layer"],
  "key.head": ["헤드 바꾸기", "Change the head"],
  "key.views": ["보기 바꾸기", "Change the view"],
  "key.group": ["묶기 바꾸기", "Change the grouping"],
  "key.theme": ["밝게, 어둡게", "Light or dark"],
  "key.language": ["한국어, 영어", "Korean or English"],
  "key.save": ["SVG로 저장", "Save as SVG"],
  "key.help": ["이 도움말", "This help"],
  "key.escape": ["고른 것 풀기, 닫기", "Clear the selection, close"],
  "key.zoom": ["행렬에서 확대하고 옮기기", "Zoom and move in the matrix"],
  "help.hover": ["마우스를 올리면 값이 보이고, 누르면 고정돼요.", "Hover for numbers, click to pin."],
  "help.reading": ["읽는 법", "How to read it"],
  "help.readingText": [
    "토큰(질의)은 저마다 다른 토큰(키)을 얼마나 볼지 가중치로 정해요. 한 토큰의 가중치를 모두 더하면 1이에요. 층마다 "
      + "헤드가 여럿 있고, 헤드마다 보는 방식이 달라요.",
    "Each token (the query) decides how much to look at every other token (the keys); these weights add up to one. "
      + "Each layer has several heads, and each head looks in its own way.",
  ],
  "help.caution": [
    "어텐션은 모델이 어디를 보는지 알려 주지만, 왜 그렇게 답했는지를 다 알려 주지는 않아요.",
    "Attention shows where a model looks. It does not by itself explain why it answers as it does.",
  ],

  // --- what can go wrong; shown in both languages at once, since no choice may have been made yet ---
  "error.title": ["페이지를 열 수 없어요", "This page cannot be shown"],
  "error.format": [
    "이 파일의 데이터는 jumok-trace 형식이 아니에요.",
    "The data in this file are not in the format jumok-trace.",
  ],
  "error.version": [
    "데이터 형식이 {version}판인데, 이 페이지는 {known}판을 읽어요. 같은 버전의 jumok으로 다시 만드세요.",
    "The data have version {version}, but this page reads version {known}. Make it again with the same jumok.",
  ],
  "error.stream": [
    "브라우저가 오래되어 압축을 풀 수 없어요. Chrome 103, Firefox 113, Safari 16.4 이상에서 열어 주세요.",
    "This browser is too old to unpack the data. Use Chrome 103, Firefox 113, Safari 16.4 or later.",
  ],
  "error.data": ["데이터가 손상되었어요: {detail}", "The data are damaged: {detail}"],
  "error.unknown": ["뜻밖의 오류: {detail}", "Unexpected error: {detail}"],
  "error.remedy": ["jumok view로 페이지를 다시 만들어 보세요.", "Try making the page again with jumok view."],
};

const LANGUAGES = ["ko", "en"];
let spoken = "ko";

/** Set the language of the whole page: "ko" or "en"; anything else is taken as English. */
export function setLanguage(language) {
  spoken = language === "ko" ? "ko" : "en";
}

/** The language that the reader's browser asks for: Korean if it names Korean first, English otherwise. */
export function preferredLanguage(languages = globalThis.navigator?.languages ?? []) {
  return (languages[0] ?? "").toLowerCase().startsWith("ko") ? "ko" : "en";
}

/** A label in the language of the page (or in the one given), with {name} replaced by values.name. */
export function t(key, values = {}, language = spoken) {
  const entry = WORDS[key];
  if (!entry) return key;
  return entry[LANGUAGES.indexOf(language)].replace(/\{(\w+)\}/g, (whole, name) =>
    name in values ? String(values[name]) : whole);
}

/** One sentence of {ko, en}, as the notes of a trace bring them. */
export function inLanguage(pair) {
  return pair[spoken] ?? pair.en ?? pair.ko ?? "";
}

/** A count with separators: 12,345. */
export function count(n) {
  return Math.round(n).toLocaleString("en-US");
}

/** A large count in few characters, as the language counts: 1,240만 in Korean, 12.4M in English. */
export function shortCount(n) {
  const short = (value) => (value >= 100 ? count(value) : String(Number(value.toPrecision(3))));
  if (spoken === "ko") {
    if (n >= 1e8) return `${short(n / 1e8)}억`;
    return n >= 1e4 ? `${short(n / 1e4)}만` : count(n);
  }
  if (n >= 1e9) return `${short(n / 1e9)}B`;
  if (n >= 1e6) return `${short(n / 1e6)}M`;
  return n >= 1e4 ? `${short(n / 1e3)}k` : count(n);
}

/** A number with a true minus sign and a fixed number of decimals: −0.125. */
export function decimal(x, digits = 3) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x < 0 ? "−∞" : "∞";
  const shown = Math.abs(x).toFixed(digits);
  return x < 0 && Number(shown) !== 0 ? `−${shown}` : shown;
}

/** The same with its sign always shown: +0.125. */
export function signed(x, digits = 3) {
  const shown = decimal(x, digits);
  return x > 0 && Number(shown) !== 0 ? `+${shown}` : shown;
}

/** A share in per cent, with more decimals the smaller it is: 42%, 4.2%, 0.42%, <0.01%. */
export function percent(x) {
  if (!Number.isFinite(x)) return "NaN";
  const value = 100 * x;
  if (value === 0) return "0%";
  if (value < 0.01) return "<0.01%";
  const digits = value >= 99.995 ? 0 : value >= 99.9 || value < 10 ? 2 : 1;
  return `${value.toFixed(digits)}%`;
}
