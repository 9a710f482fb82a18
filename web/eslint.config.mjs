// What the compiler lets pass: promises that nobody waits for, loose comparisons, cases left out, what is always true.
import eslint from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "src/api/types.ts"] },
  eslint.configs.recommended,
  tseslint.configs.recommendedTypeChecked,
  { languageOptions: { parserOptions: { projectService: { allowDefaultProject: ["*.mjs"] } } } },
  { files: ["*.mjs"], languageOptions: { globals: { process: "readonly" } } },
  {
    rules: {
      // the compiler finds unused names itself, and knows `x ??= …` as a use
      "no-unused-private-class-members": "off",
      eqeqeq: "error",
      // `node:test` waits for its tests by itself
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", name: "test", package: "node:test" }] },
      ],
      "@typescript-eslint/no-unused-expressions": ["error", { allowTernary: true, allowShortCircuit: true }],
      "@typescript-eslint/switch-exhaustiveness-check": "error",
    },
  },
);
