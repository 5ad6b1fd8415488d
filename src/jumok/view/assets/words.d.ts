// The words of a page as the bundler hands them to its modules.
declare module "*.toml" {
  /** [Korean, English] of each key. */
  export const words: Record<string, readonly [string, string]>;
}
