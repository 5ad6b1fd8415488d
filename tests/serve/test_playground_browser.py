"""The playground in a real browser, against a real server: every tab, the keyboard, the key, a run that is written to.

No request may go elsewhere, and nothing may be complained about in the console; the fixture `visit` sees to that.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from served_runs import random_model

import jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.course.ladder.results import LadderRecord, TextFacts
from jumok.course.ladder.rungs import LadderConfig
from jumok.files import locked
from jumok.serve.app import create_app
from jumok.serve.desk.folders import RunFolders
from jumok.serve.limits import limited
from jumok.serve.metrics import Metrics
from jumok.serve.models import Models
from jumok.serve.server import Server, listen
from jumok.serve.settings import ServeSettings

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")

pytestmark = [pytest.mark.browser, pytest.mark.long]

TEXT = "나는 학교에 갔다. 너는 밥을 먹었다. 😀\n" * 6
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]"]
HOSTILE = "<img src=x onerror=window.harmed=1></p><script>window.harmed=2</script>"
Visit = Callable[..., Any]


def line(**event: Any) -> str:
    return json.dumps(event, ensure_ascii=False) + "\n"


def step(number: int) -> str:
    return line(
        event="step", step=number, loss=3.0 / number, rate=1.0, seconds=float(number), progress=number / 100,
        remaining=60.0, tokens_per_second=1234.0,
    )  # fmt: skip


def save(folder: Path, model: Any) -> None:
    """A finished run of a model, with a curve and a sample that means harm."""
    jumok.save(model, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"train": {"task": "lm"}, "data": {"floor": 0.3, "sources": ["/texts/a.txt"]}}
    config["finished"] = {"step": 3, "reason": "done"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "state").mkdir(exist_ok=True)
    validation = line(
        event="eval", step=3, figures={"loss": 1.5, "nats_per_char": 1.5}, headline="1.5", best=True, seconds=1
    )
    events = [step(1), step(2), validation, step(3), line(event="sample", step=3, text=HOSTILE)]
    (folder / "metrics.jsonl").write_text("".join(events), encoding="utf-8")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("playground") / "runs"
    sizes = {"n_layer": 2, "context_length": 64}
    save(root / "gpt", random_model(GPTConfig, TEXT, [], seed=1, **sizes))
    save(root / "other", random_model(GPTConfig, TEXT, [], seed=2, **sizes))
    save(root / "classes", random_model(GPTConfig, TEXT, SPECIAL, seed=3, labels=("좋음", "나쁨")))
    save(root / "mlm", random_model(BERTConfig, TEXT, SPECIAL, seed=4, head="mlm"))
    ids = {"pad_id": 0, "bos_id": 4, "eos_id": 5, "decoder_start_id": 4}
    save(root / "pairs", random_model(EncoderDecoderConfig, TEXT, SPECIAL, seed=5, **ids))
    facts = TextFacts(sources=("a.txt",), sha256="0" * 64, chars=100)
    (root / "race").mkdir()
    LadderRecord(config=LadderConfig(), text=facts, floor=0.3).write(root / "race")
    save(root / "race" / "01-bigram", random_model(GPTConfig, TEXT, [], seed=1))
    return root


@contextmanager
def running(root: Path, **settings: Any) -> Iterator[str]:
    chosen = ServeSettings(port=0, slots=2, timeout=30, **settings)
    models, ready, metrics = Models([], chosen), threading.Event(), Metrics()
    app = create_app(models, chosen, metrics, RunFolders([], root))
    with listen(chosen) as sock:
        server = Server(limited(app, chosen, metrics), chosen, ready.set, lambda: None)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            assert ready.wait(10)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/"
        finally:
            server.should_exit = server.force_exit = True
            server._end_now()
            thread.join(20)
            models.close(finish=False)


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_NATIVE", "0")
        with running(root) as address:
            yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    """Opens a page of the playground; afterwards nothing was complained about, and nothing asked elsewhere."""
    opened: list[tuple[Any, list[str], list[str]]] = []

    def open_page(place: str = "", *, at: str = address, width: int = 1280, locale: str = "en-US", **given: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, locale=locale, **given)
        page, said, asked = context.new_page(), [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        opened.append((context, said, asked))
        page.goto(at + place)
        return page

    yield open_page
    for context, said, asked in opened:
        page = context.pages[0]
        assert page.evaluate("window.harmed") is None
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        origin = page.url.split("#")[0]
        context.close()
        assert [url for url in asked if not url.startswith((origin, "data:", "blob:"))] == []
        assert [text for text in said if "status of 401" not in text and "status of 409" not in text] == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_list_and_a_run(visit: Visit, width: int, scheme: str) -> None:
    page = visit(width=width, color_scheme=scheme)
    page.get_by_role("link", name="gpt", exact=True).click()
    page.get_by_role("img", name="Loss curve").wait_for()
    assert page.get_by_text("floor", exact=True).count() >= 1
    assert HOSTILE in page.locator(".samples").inner_text()
    assert "/texts" not in page.locator("#main").inner_text()
    page.locator(".chart").focus()
    page.keyboard.press("ArrowLeft")
    assert "Training loss 1.00" in page.locator(".chart-readout").inner_text()


def test_a_run_grows_in_sight(visit: Visit, root: Path) -> None:
    page = visit("#run=other")
    page.locator(".badge.finished").wait_for()
    with locked(root / "other" / "state" / "lock"):
        page.locator(".badge.running").wait_for()
        with (root / "other" / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(step(4) + line(event="sample", step=4, text="새로 쓴 글"))
        page.get_by_text("새로 쓴 글").wait_for()
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Stopping").wait_for()
        assert (root / "other" / "state" / "stop").exists()
    page.get_by_role("button", name="Train further").wait_for()


def test_tabs_by_keyboard_in_both_languages(visit: Visit) -> None:
    page = visit(locale="ko-KR")
    page.get_by_role("tab", name="학습").focus()
    for name in ("쓰기", "비교", "토큰"):
        page.keyboard.press("ArrowRight")
        page.get_by_role("tab", name=name, selected=True).wait_for()
    page.get_by_role("button", name="English").click()
    page.get_by_role("heading", name="Tokens of a text").wait_for()
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.title() == "jumok · Tokens"
    page.locator("#tool-theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_tokens_of_a_text(visit: Visit) -> None:
    page = visit("#tokens")
    page.locator("#tokens-text").fill("나는 " + HOSTILE)
    page.locator(".piece", has_text="나").first.wait_for()
    assert page.locator(".token-results h3").all_inner_texts() == ["classes", "gpt", "mlm"]
    page.get_by_label("mlm").uncheck()
    page.locator(".token-results h3", has_text="mlm").wait_for(state="detached")


def test_two_runs_side_by_side(visit: Visit) -> None:
    page = visit("#compare")
    page.locator("#compare-tokens").fill("20")
    page.locator("#side-1").select_option("other")
    page.locator("#compare-go").click()
    page.locator(".halves .token").first.wait_for()
    page.get_by_role("button", name="Write both").wait_for()
    figures = page.locator(".halves .muted").all_inner_texts()
    assert all("20 tokens" in text for text in figures)
    page.locator(".halves .token").first.click()
    assert page.locator(".shares li").count() == 8


@pytest.mark.parametrize("width", [1280, 390])
def test_a_line_break_breaks_the_line_of_a_text(visit: Visit, width: int) -> None:
    """Tokens were buttons, and a line break in a button does not end the line around it."""
    facts = {"probability": 0.5, "surprise": 0.7, "alternatives": [], "per_second": 1}
    tokens = [{"id": i, "text": text, "added": text, **facts} for i, text in enumerate(["나", "\n", "는\n다", "라"])]
    body = "".join(f"data: {json.dumps(token)}\n\n" for token in tokens)
    page = visit("#compare", width=width)
    page.route("**/engine/write", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.locator("#compare-go").click()
    text = page.locator(".halves .written").first
    text.locator(".token", has_text="라").wait_for()
    lefts, tops = [], []
    for i in (0, 2, 3):
        box = (
            text.locator(".token")
            .nth(i)
            .evaluate("one => one.getClientRects()[one.getClientRects().length - 1].toJSON()")
        )
        lefts.append(box["left"])
        tops.append(box["top"])
    assert tops[0] < tops[1] == tops[2]
    assert lefts[1] < lefts[2]
    assert lefts[1] == text.evaluate("one => one.getBoundingClientRect().left")
    text.locator(".token").nth(3).focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Candidates in place of 라").wait_for()


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.long)])
def test_a_text_is_written_by_the_server(visit: Visit, width: int) -> None:
    page = visit("#write=gpt", width=width)
    page.locator("#tool-write").wait_for()
    page.wait_for_function("document.getElementById('prompt')?.value.length > 20")
    page.get_by_role("button", name="One step").click()
    page.locator(".step-title").wait_for()
    page.wait_for_function("document.querySelector('.step-title').textContent !== ''")


def test_a_model_that_opens_late(visit: Visit) -> None:
    """A model that was still being opened when another one was chosen took its place; nothing but the last is shown."""
    page = visit("#write=gpt")
    page.wait_for_selector(".paper textarea")
    waiting: list[Any] = []
    page.route("**/engine/about", lambda route: waiting.append(route) if not waiting else route.continue_())
    with page.expect_request("**/engine/about"):
        page.select_option("#write-model", "other")
    page.wait_for_selector(".write-stage > [role=status]")
    page.select_option("#write-model", "classes")
    page.wait_for_selector("#panel-classify")
    with page.expect_response("**/engine/about"):
        waiting[0].continue_()
    page.wait_for_timeout(100)
    assert page.locator(".write-stage > .view").count() == 1
    assert page.locator("#panel-classify").is_visible()
    for place in ("#constructor", "#runs=%E0%A4%A"):  # addresses that a person may type
        page.evaluate("place => { location.hash = place }", place)
        page.wait_for_selector(".headline, .runs")


@pytest.mark.parametrize(("name", "panel"), [("classes", "classify"), ("mlm", "fill"), ("pairs", "answer")])
def test_other_models_have_their_views(visit: Visit, name: str, panel: str) -> None:
    page = visit(f"#write={name}")
    page.locator(f"#panel-{panel}").wait_for()


def test_beams_are_shown(visit: Visit) -> None:
    page = visit("#write=pairs")
    page.locator("#beams").select_option(index=1)
    page.locator("#panel-answer textarea").fill("나는")
    page.locator("#tool-answer").click()
    page.locator(".beams h3").wait_for()


def test_the_form_of_a_new_run(visit: Visit, root: Path) -> None:
    page = visit("#new")
    file = {"name": "내 소설.txt", "mimeType": "text/plain", "buffer": TEXT.encode("cp949", "ignore")}
    page.locator("#file").set_input_files(file)
    page.get_by_text("characters · CP949").first.wait_for()
    assert page.locator("#name").input_value() == "내-소설"
    page.locator("#name").fill("gpt")
    page.get_by_role("button", name="Start training").click()
    page.get_by_text("there is a folder gpt already").wait_for()
    page.get_by_role("button", name="Remove the file").click()
    page.get_by_role("button", name="Ladder: ten models").click()
    page.get_by_text("Minutes for each model").wait_for()


def test_the_columns_of_a_table_are_a_menu(visit: Visit) -> None:
    """The name of the column was to be typed; without it the run failed after its start."""
    page = visit("#new")
    table = {"name": "평.csv", "mimeType": "text/csv", "buffer": "평점,리뷰\n5,재미있어요\n".encode("cp949")}
    page.locator("#file").set_input_files(table)
    page.locator("#column").wait_for()
    assert page.locator("#column option").all_inner_texts() == ["Choose a column", "평점", "리뷰"]
    page.get_by_role("button", name="Start training").click()
    assert page.evaluate("document.activeElement.id") == "column"
    page.locator("#column").select_option("리뷰")
    page.get_by_text("재미있어요").wait_for()
    assert page.locator("#column option").all_inner_texts() == ["평점", "리뷰"]
    asked: list[Any] = []

    def start(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(json={"name": "gpt"})

    page.route("**/runs/start", start)
    page.get_by_role("button", name="Start training").click()
    page.get_by_role("heading", name="gpt").wait_for()
    assert page.url.endswith("#run=gpt")
    assert asked[0]["column"] == "리뷰"


def test_a_run_that_was_just_started_is_shown(visit: Visit, root: Path) -> None:
    """It has no folder yet; the page said that there is no such run, and did not look again."""
    pending = {"name": "young", "code": None, "said": "reading the text"}
    page = visit()
    page.route("**/jumok/run?name=young", lambda route: route.fulfill(json={"name": "young", "started": pending}))
    page.evaluate("location.hash = 'run=young'")
    page.locator(".badge.starting").wait_for()
    assert page.locator(".said").inner_text() == "reading the text"
    assert page.locator("#toast").is_hidden()
    pending |= {"code": 1, "said": "error: the text is too short"}
    page.locator(".badge.failed").wait_for()
    assert "too short" in page.locator(".said").inner_text()
    shutil.copytree(root / "gpt", root / "young")
    page.unroute_all()
    page.get_by_role("img", name="Loss curve").wait_for()
    page.evaluate("location.hash = 'runs'")
    shutil.rmtree(root / "young")


def test_the_ladder_is_drawn(visit: Visit) -> None:
    page = visit("#ladder=race")
    page.get_by_role("img", name="The validation loss of ten models").wait_for()
    assert page.locator("tbody tr").count() == 10
    page.get_by_role("button", name="Training time").click()
    page.get_by_role("link", name="1. bigram").click()
    page.get_by_role("heading", name="race/01-bigram").wait_for()


def test_the_key_is_asked_for(visit: Visit, root: Path) -> None:
    with running(root, keys=("secret",)) as address:
        page = visit(at=address)
        page.get_by_label("API key").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_label("API key").fill("secret")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("link", name="gpt", exact=True).wait_for()
        assert page.evaluate("sessionStorage.getItem('jumok-key')") == "secret"
        assert page.evaluate("JSON.stringify(localStorage)") == "{}"
        page.goto("about:blank")  # its requests end before the server does
        page.go_back()
        page.get_by_role("link", name="gpt", exact=True).wait_for()
