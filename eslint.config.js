// What ESLint looks for: real errors, and forms that jumok.view.bundle or a page's content-security policy refuse.
// TypeScript finds names that are not defined; Prettier sees to the style.

import js from "@eslint/js";

const FORMS = [
  ["ExportDefaultDeclaration, ExportAllDeclaration", "Export functions, classes and constants by their names."],
  ["ExportNamedDeclaration[declaration=null]", "Write export before the declaration."],
  [
    "ExportNamedDeclaration > VariableDeclaration[kind!='const']",
    "Export a constant, or a function that gives the value.",
  ],
  ["ImportDefaultSpecifier, ImportNamespaceSpecifier, ImportExpression", 'Write import { name } from "./file.js".'],
  ["TemplateElement[value.raw=/\\n/]", "A template may not contain a line end: write \\n."],
  [
    "Program > :matches(ExpressionStatement, VariableDeclaration) AwaitExpression:not(:function *)",
    "A module may not wait.",
  ],
  [
    "CallExpression[callee.property.name='setAttribute'][arguments.0.value='style']",
    "The policy forbids it: set element.style.",
  ],
];

const AS_HTML = ["innerHTML", "outerHTML", "insertAdjacentHTML", "createContextualFragment", "write", "writeln"];

export default [
  { ignores: ["build/", "runs/", "docs/_build/", ".venv/"] },
  js.configs.recommended,
  {
    rules: {
      "array-callback-return": "error",
      eqeqeq: "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-self-compare": "error",
      "no-throw-literal": "error",
      "no-undef": "off",
      "no-unmodified-loop-condition": "error",
      "no-unreachable-loop": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
  {
    files: ["src/**/*.js"],
    rules: {
      "no-restricted-properties": [
        "error",
        ...AS_HTML.slice(0, 4).map((property) => ({ property, message: "Text goes in as text: use element()." })),
        ...AS_HTML.slice(4).map((property) => ({ object: "document", property, message: "Use element()." })),
      ],
      "no-restricted-syntax": ["error", ...FORMS.map(([selector, message]) => ({ selector, message }))],
    },
  },
];
