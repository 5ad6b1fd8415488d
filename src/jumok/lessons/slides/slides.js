// Shows one slide at a time, scaled to the window, and shrinks the text of a slide that would not fit.
(() => {
  "use strict";
  const WIDTH = 1280;
  const HEIGHT = 720;
  const SMALLEST = 0.5; // of the usual size of letters
  const SWIPE = 50; // pixels
  const root = document.documentElement;
  const slides = [...document.querySelectorAll(".slide")];
  let current = 0;
  let notes = null; // the panel, if it is shown

  function go(to) {
    current = Math.max(0, Math.min(slides.length - 1, to));
    slides.forEach((slide, i) => {
      slide.classList.toggle("current", i === current);
      slide.setAttribute("aria-hidden", String(i !== current));
    });
    if (location.hash !== `#${current + 1}`) history.replaceState(null, "", `#${current + 1}`);
    fillNotes();
  }

  function fillNotes() {
    if (notes) notes.firstChild.replaceChildren(...slides[current].querySelector(".notes").cloneNode(true).childNodes);
  }

  function toggleNotes() {
    if (notes) {
      notes.remove();
      notes = null;
    } else {
      notes = document.createElement("div");
      notes.id = "notes";
      notes.append(document.createElement("div"));
      document.body.append(notes);
      fillNotes();
    }
    resize();
  }

  function toggleTheme() {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }

  function resize() {
    const height = notes ? innerHeight * 0.66 : innerHeight;
    root.style.setProperty("--scale", Math.min(innerWidth / WIDTH, height / HEIGHT));
  }

  function fit(slide) {
    const body = slide.querySelector(".body");
    const size = parseFloat(getComputedStyle(body).fontSize);
    const over = () => body.scrollHeight > body.clientHeight + 1 || body.scrollWidth > body.clientWidth + 1;
    for (let share = 0.95; over() && share >= SMALLEST; share -= 0.05) body.style.fontSize = `${size * share}px`;
  }

  const keys = {
    ArrowRight: () => go(current + 1),
    ArrowDown: () => go(current + 1),
    PageDown: () => go(current + 1),
    " ": () => go(current + 1),
    ArrowLeft: () => go(current - 1),
    ArrowUp: () => go(current - 1),
    PageUp: () => go(current - 1),
    Home: () => go(0),
    End: () => go(slides.length - 1),
    n: toggleNotes,
    d: toggleTheme,
    f: () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen()),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    root.classList.add("moved");
    keys[event.key]();
  });

  let touched = null;
  addEventListener(
    "touchstart",
    (event) => {
      touched =
        event.touches.length === 1 && !(notes && notes.contains(event.target)) ? event.touches[0].clientX : null;
    },
    { passive: true },
  );
  addEventListener("touchend", (event) => {
    if (touched === null) return;
    const moved = event.changedTouches[0].clientX - touched;
    if (Math.abs(moved) > SWIPE) go(current + (moved < 0 ? 1 : -1));
  });

  addEventListener("resize", resize);
  addEventListener("hashchange", () => go(Number(location.hash.slice(1)) - 1 || 0));
  addEventListener("load", () => slides.forEach(fit));
  root.classList.add("js");
  resize();
  go(Number(location.hash.slice(1)) - 1 || 0);
})();
