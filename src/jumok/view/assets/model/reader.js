/**
 * Reads the parameters of a page, which `jumok.view.model_page` has written: base64 of the raw deflate format of bytes,
 * in which a header finds each parameter. A page that was damaged on its way is refused with the code "damaged".
 */

import { fromBase64, halfToNumber, inflate } from "../base/bytes.js";
import { EngineError } from "./errors.js";
import { makeKernels, strideOf } from "./kernels.js";
import { Matrix, Parameters } from "./matrices.js";

/**
 * @typedef {object} Entry
 * @property {string} name in the state dict
 * @property {number[]} shape
 * @property {"int8" | "float16" | "float32"} type
 * @property {number} offset in bytes
 * @property {number} [scale_offset] in bytes: one float32 for each row of an int8 matrix
 */
/** @typedef {Record<string, any>} Config */
/**
 * @typedef {object} Header
 * @property {string} format
 * @property {number} version
 * @property {Record<string, any>} about
 * @property {Config} config
 * @property {Record<string, any>} tokenizer
 * @property {Entry[]} parameters
 * @property {number} bytes
 * @property {number} crc32 of the bytes
 * @property {string} sha256 of the bytes
 */

const FORMAT = "jumok-model-page";
const VERSION = 1;
const SIZES = { int8: 1, float16: 2, float32: 4 };

/** The JSON of a page. @param {string} text @returns {Header} */
export function readHeader(text) {
  /** @type {Header} */
  let header;
  try {
    header = JSON.parse(text);
  } catch {
    throw new EngineError("engine.damaged", { reason: "the header is no JSON" });
  }
  if (header?.format !== FORMAT || !Array.isArray(header.parameters)) {
    throw new EngineError("engine.damaged", { reason: "the header is of another format" });
  }
  if (header.version !== VERSION) throw new EngineError("engine.newer", { version: header.version, known: VERSION });
  return header;
}

/**
 * The parameters of a page, checked.
 * @param {Header} header @param {string} base64
 * @param {{kernels?: "simd" | "javascript"}} [options] for tests; otherwise the fastest that work
 * @returns {Promise<Parameters>}
 */
export async function readParameters(header, base64, { kernels } = {}) {
  return placeParameters(header, await readBytes(header, base64), kernels);
}

/**
 * @param {Header} header @param {string} base64
 * @returns {Promise<Uint8Array<ArrayBuffer>>} the raw bytes, which are those that were written
 */
async function readBytes(header, base64) {
  let bytes;
  try {
    bytes = await inflate(fromBase64(base64));
  } catch {
    throw new EngineError("engine.damaged", { reason: "the parameters cannot be unpacked" });
  }
  if (bytes.length !== header.bytes) {
    throw new EngineError("engine.damaged", { reason: `${bytes.length} of ${header.bytes} bytes` });
  }
  const same = globalThis.crypto?.subtle // not in every browser for a page that was opened from disk
    ? hex(await crypto.subtle.digest("SHA-256", bytes)) === header.sha256
    : crc32(bytes) === header.crc32;
  if (!same) throw new EngineError("engine.damaged", { reason: "the checksum differs" });
  return bytes;
}

/**
 * Copy parameters into the memory of kernels. 16-bit floats become 32-bit ones.
 * @param {Header} header @param {Uint8Array<ArrayBuffer>} bytes @param {"simd" | "javascript"} [wanted]
 * @returns {Parameters}
 */
function placeParameters(header, bytes, wanted) {
  for (const entry of header.parameters) requireInside(entry, bytes.length);
  const matrices = header.parameters.filter(({ shape }) => shape.length === 2);
  let size = 0;
  const places = matrices.map(({ shape: [rows, columns], type }) => {
    const place = size;
    const bytes = rows * strideOf(columns) * (type === "int8" ? 1 : 4);
    size += bytes + (type === "int8" ? Math.ceil(rows / 4) * 16 : 0); // the scales are behind the numbers
    return { place, behind: place + bytes };
  });
  const kernels = makeKernels(size, Math.max(...matrices.flatMap(({ shape }) => shape)), wanted);
  /** @type {Map<string, Matrix>} */
  const placed = new Map();
  matrices.forEach((entry, number) => {
    const [rows, columns] = entry.shape;
    const stride = strideOf(columns);
    const source = numbersOf(entry, bytes);
    const { place, behind } = places[number];
    const weights = new (entry.type === "int8" ? Int8Array : Float32Array)(kernels.memory, place, rows * stride);
    const scales = entry.type === "int8" ? new Float32Array(kernels.memory, behind, rows) : null;
    scales?.set(scalesOf(entry, bytes));
    for (let row = 0; row < rows; row++) {
      weights.set(source.subarray(row * columns, (row + 1) * columns), row * stride);
    }
    placed.set(entry.name, new Matrix(kernels, weights, scales, rows, columns));
  });
  const vectors = header.parameters.filter(({ shape }) => shape.length === 1);
  const read = vectors.map((entry) => /** @type {const} */ ([entry.name, Float32Array.from(numbersOf(entry, bytes))]));
  return new Parameters(placed, new Map(read), kernels);
}

/** @param {Entry} entry @param {number} size of the file */
function requireInside({ name, shape, type, offset, scale_offset = type === "int8" ? -1 : 0 }, size) {
  const ends = [offset + countOf(shape) * SIZES[type], scale_offset + 4 * shape[0]];
  if (!(offset >= 0 && scale_offset >= 0 && Math.max(...ends) <= size)) {
    throw new EngineError("engine.damaged", { reason: `${name} is outside the file` });
  }
}

/** @param {number[]} shape @returns {number} */
function countOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

/** @param {Entry} entry @param {Uint8Array<ArrayBuffer>} bytes @returns {Int8Array | Float32Array} */
function numbersOf({ shape, type, offset }, bytes) {
  const count = countOf(shape);
  const part = bytes.slice(offset, offset + count * SIZES[type]).buffer;
  if (type === "int8") return new Int8Array(part);
  return type === "float32" ? new Float32Array(part) : Float32Array.from(new Uint16Array(part), halfToNumber);
}

/** @param {Entry} entry @param {Uint8Array<ArrayBuffer>} bytes @returns {Float32Array} */
function scalesOf(entry, bytes) {
  const scales = { ...entry, shape: [entry.shape[0]], type: /** @type {const} */ ("float32") };
  return /** @type {Float32Array} */ (numbersOf({ ...scales, offset: entry.scale_offset ?? -1 }, bytes));
}

/** @param {ArrayBuffer} buffer @returns {string} */
function hex(buffer) {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The checksum of zip and png files. @param {Uint8Array} bytes @returns {number} */
export function crc32(bytes) {
  const table = Int32Array.from({ length: 256 }, (_, byte) => {
    for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
    return byte;
  });
  let crc = -1;
  for (const byte of bytes) crc = (crc >>> 8) ^ table[(crc ^ byte) & 255];
  return (crc ^ -1) >>> 0;
}
