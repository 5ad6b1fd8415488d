// The parts of a step as a list of buttons, grouped as the model is built: the line beside it is the residual stream.

import { element } from "../base/controls.js";
import { t } from "../base/words.js";
import { GROUPS } from "./step_parts.js";

/** @typedef {{id: string, group: import("./step_parts.js").Group}} Part */

export class StepMap {
  /** @param {(id: string) => void} onopen */
  constructor(onopen) {
    this.onopen = onopen;
    /** @type {HTMLElement[]} */
    this.stops = [];
    this.element = element("nav", { class: "step-map" });
  }

  /** @param {Part[]} parts @param {number} layer */
  render(parts, layer) {
    this.element.setAttribute("aria-label", t("step.map"));
    this.stops = parts.map(({ id }) =>
      element("button", {
        type: "button",
        class: "step-stop",
        "data-part": id,
        text: t(`step.part.${id}`),
        onclick: () => this.onopen(id),
      }),
    );
    this.element.replaceChildren(
      ...GROUPS.map((group) => {
        const inLayer = group === "attention" || group === "mlp";
        const name = t(`step.group.${group}`) + (inLayer ? ` · ${t("step.where.layer", { layer })}` : "");
        const stops = this.stops.filter((_, i) => parts[i].group === group);
        return element("div", { class: `step-group step-group-${group}` }, [
          element("p", { class: "step-group-name", text: name }),
          element(
            "ol",
            {},
            stops.map((stop) => element("li", {}, [stop])),
          ),
        ]);
      }),
    );
  }

  /** Mark the part that is open, and bring it into sight. @param {number} at */
  mark(at) {
    const { element: map } = this;
    this.stops.forEach((stop, i) => {
      stop.classList.toggle("passed", i < at);
      if (i === at) stop.setAttribute("aria-current", "step");
      else stop.removeAttribute("aria-current");
    });
    const [stop, box] = [this.stops[at].getBoundingClientRect(), map.getBoundingClientRect()];
    if (map.scrollWidth > map.clientWidth)
      map.scrollLeft += stop.left - box.left - map.clientWidth / 2 + stop.width / 2;
    if (stop.top < box.top) map.scrollTop += stop.top - box.top - 8;
    else if (stop.bottom > box.bottom) map.scrollTop += stop.bottom - box.bottom + 8;
  }
}
