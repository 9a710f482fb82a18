// Elements of the page. Words are always set as text.

export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  kind = "",
  words = "",
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (words) made.textContent = words;
  return made;
}

/** label: for those who can't see the sign. */
export function button(sign: string, label: string, act: () => void): HTMLButtonElement {
  const made = element("button", "", sign);
  made.type = "button";
  made.title = label;
  if (sign.length < 3) made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}
