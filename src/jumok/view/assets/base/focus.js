// The focus of the keyboard stays where the reader is when the page draws that place anew, hides it or switches it off.

const FIELDS = "a[href], button, input, select, summary, textarea, [tabindex]";

/** Where an element stands, so that the one that is made in its place is found. @param {HTMLElement} element */
function placeOf(element) {
  const around = [];
  for (let at = element.parentElement; at; at = at.parentElement) around.push(at);
  const home = around.find(({ id }) => id)?.id ?? "";
  const fields = () => [.../** @type {any} */ (document.getElementById(home) ?? document).querySelectorAll(FIELDS)];
  const index = fields().indexOf(element);
  const anew = () => (element.id ? document.getElementById(element.id) : fields()[index]);
  return { element, around, anew };
}

/** Whether an element can have the focus, as far as its attributes say. @param {Element | null | undefined} element */
function isOpen(element) {
  return Boolean(element?.isConnected && !element.matches(":disabled") && !element.closest("[hidden]"));
}

/**
 * Keep the focus in this document. If its element is replaced, the one with the same id gets it, or without an id the one
 * at the same place. If it is switched off, hidden or gone, the nearest part around it with a `tabindex` has the focus
 * until it is back.
 */
export function keepFocus() {
  /** @type {ReturnType<typeof placeOf> | null} */
  let held = null;
  /** @type {HTMLElement | undefined} what has the focus instead */
  let instead;
  const look = (/** @type {MutationRecord[]} */ records) => {
    const { activeElement } = document;
    if (!held || (activeElement !== document.body && activeElement !== instead && isOpen(activeElement))) return;
    const { element, around, anew } = held;
    const moved = () => records.some(({ removedNodes }) => [...removedNodes].some((node) => node.contains(element)));
    const again = isOpen(element) ? (instead || moved() ? element : null) : anew();
    if (isOpen(again)) {
      again?.focus({ preventScroll: true });
    } else if (!instead && !isOpen(element)) {
      instead = around.find((at) => at.hasAttribute("tabindex") && isOpen(at));
      instead?.focus({ preventScroll: true });
    }
  };
  document.addEventListener("focusin", ({ target }) => {
    if (target === instead) return;
    held = placeOf(/** @type {HTMLElement} */ (target));
    instead = undefined;
  });
  document.addEventListener("focusout", ({ target }) =>
    setTimeout(() => {
      // Nobody took it from there: the reader left it, for no other element.
      if (document.activeElement === document.body && isOpen(/** @type {Element} */ (target))) held = null;
    }),
  );
  const attributes = { attributes: true, attributeFilter: ["disabled", "hidden"] };
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true, ...attributes });
}
