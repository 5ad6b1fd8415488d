/**
 * WebAssembly from named instructions: a function's body is written as nested expressions, and `assemble` returns the
 * bytes of a module. Only what `kernels.js` needs is here.
 * An instruction is a nested list of bytes, with its operands in front of it. Encodings:
 * https://webassembly.github.io/spec/core/binary/index.html
 */

/** @typedef {number | Code[]} Code */
/** @typedef {{name: string, parameters: string[], locals: Record<string, "i32" | "f32" | "v128">, body: Code}} Kernel */

const TYPES = { i32: 0x7f, f32: 0x7d, v128: 0x7b };
const NO_RESULT = 0x40;
const END = 0x0b;
const SIMD = 0xfd;

/** An unsigned integer as LEB128. @param {number} value @returns {number[]} */
export function unsigned(value) {
  const bytes = [];
  do {
    const rest = Math.floor(value / 128);
    bytes.push((value % 128) | (rest ? 0x80 : 0));
    value = rest;
  } while (value);
  return bytes;
}

/** A signed 32-bit integer as LEB128. @param {number} value @returns {number[]} */
export function signed(value) {
  const bytes = [];
  for (;;) {
    const low = value & 0x7f;
    value >>= 7;
    if ((value === 0 && !(low & 0x40)) || (value === -1 && low & 0x40)) return [...bytes, low];
    bytes.push(low | 0x80);
  }
}

/** @type {(opcode: number) => (...operands: Code[]) => Code} */
const instruction =
  (opcode) =>
  (...operands) => [...operands, opcode];
/** @type {(opcode: number) => (...operands: Code[]) => Code} */
const vector =
  (opcode) =>
  (...operands) => [...operands, SIMD, unsigned(opcode)];
/** @type {(code: number[], alignment: number) => (address: Code, offset?: number) => Code} */
const load =
  (code, alignment) =>
  (address, offset = 0) => [address, code, alignment, unsigned(offset)];

/** Instructions on 32-bit integers, which are addresses and counters. */
export const i32 = {
  /** @type {(value: number) => Code} */
  constant: (value) => [0x41, signed(value)],
  add: instruction(0x6a),
  lessThan: instruction(0x49), // unsigned
};

/** Instructions on 32-bit floats. */
export const f32 = {
  /** @type {Code} */
  zero: [0x43, 0, 0, 0, 0],
  load: load([0x2a], 2),
  /** @type {(address: Code, value: Code) => Code} */
  store: (address, value) => [address, value, 0x38, 2, 0],
  add: instruction(0x92),
  mul: instruction(0x94),
};

/** Loads and stores of 16 bytes, and loads of 8 bytes that become eight 16-bit integers. */
export const v128 = {
  load: load([SIMD, 0x00], 4),
  loadBytes: load([SIMD, 0x01], 3), // v128.load8x8_s
  /** @type {(address: Code, value: Code, offset?: number) => Code} */
  store: (address, value, offset = 0) => [address, value, SIMD, 0x0b, 4, unsigned(offset)],
};

/** The lower or upper four of eight 16-bit integers as 32-bit integers. */
export const i32x4 = { low: vector(0xa7), high: vector(0xa8) };

/** Instructions on four 32-bit floats. */
export const f32x4 = {
  splat: vector(0x13),
  /** @type {(lane: number, value: Code) => Code} */
  lane: (lane, value) => [value, SIMD, 0x1f, lane],
  convert: vector(0xfa), // from signed integers
  add: vector(0xe4),
  mul: vector(0xe6),
};

/**
 * The memory that the module shares, exported functions, and nothing else.
 * @param {Kernel[]} kernels of addresses and counts: all parameters are i32, and there is no result
 * @returns {Uint8Array<ArrayBuffer>} imports its memory as `page.memory`
 */
export function assemble(kernels) {
  const types = kernels.map(({ parameters }) => [0x60, counted(parameters.map(() => TYPES.i32)), 0]);
  const exports = kernels.map(({ name }, index) => [text(name), 0x00, unsigned(index)]);
  const sections = [
    section(1, counted(types)),
    section(2, counted([[text("page"), text("memory"), 0x02, 0x00, 1]])),
    section(3, counted(kernels.map((_, index) => unsigned(index)))),
    section(7, counted(exports)),
    section(10, counted(kernels.map(body))),
  ];
  return Uint8Array.from(flat([0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...sections]));
}

/**
 * Reading and setting the locals of a function by name.
 * @param {string[]} parameters @param {Record<string, unknown>} locals
 * @returns {{get: (name: string) => Code, set: (name: string, value: Code) => Code}}
 */
export function localsOf(parameters, locals) {
  const names = [...parameters, ...Object.keys(locals)];
  return {
    get: (name) => [0x20, unsigned(names.indexOf(name))],
    set: (name, value) => [value, 0x21, unsigned(names.indexOf(name))],
  };
}

/** do { body } while (condition) @param {Code} body @param {Code} condition @returns {Code} */
export function repeat(body, condition) {
  return [0x03, NO_RESULT, body, condition, 0x0d, 0, END];
}

/** @param {Kernel} kernel @returns {Code} */
function body({ locals, body: code }) {
  const declared = Object.values(locals).map((type) => [1, TYPES[type]]);
  const bytes = flat([counted(declared), code, END]);
  return [unsigned(bytes.length), bytes];
}

/** @param {number} id @param {Code} content @returns {Code} */
function section(id, content) {
  const bytes = flat([content]);
  return [id, unsigned(bytes.length), bytes];
}

/** @param {Code[]} items @returns {Code} */
function counted(items) {
  return [unsigned(items.length), items];
}

/** @param {string} name of ASCII characters @returns {Code} */
function text(name) {
  return counted([...name].map((character) => character.charCodeAt(0)));
}

/** @param {Code[]} code @returns {number[]} */
function flat(code) {
  return code.flatMap((part) => (typeof part === "number" ? part : flat(part)));
}
