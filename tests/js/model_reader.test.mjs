// @ts-check
// What `model/reader.js` accepts, and what it refuses.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";

import { halfToNumber } from "../../src/jumok/view/assets/base/bytes.js";
import { crc32, readHeader, readParameters } from "../../src/jumok/view/assets/model/reader.js";

/** A page with a matrix of each type and a vector. */
function page() {
  const bytes = Buffer.alloc(80);
  bytes.set(Uint8Array.of(1, 255, 127, 129, 0, 2), 0); // int8: 1 -1 127 | -127 0 2
  for (const [place, value] of [
    [16, 0.5],
    [20, 2],
    [32, 1.5],
    [36, -3],
  ])
    bytes.writeFloatLE(value, place);
  bytes.set(Uint8Array.of(0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0xff, 0x7b), 48); // float16: 1 -2 | 2^-24 65504
  for (const [place, value] of [
    [64, 0.1],
    [68, 7],
  ])
    bytes.writeFloatLE(value, place);
  const header = {
    format: "jumok-model-page",
    version: 1,
    about: {},
    config: {},
    tokenizer: {},
    parameters: [
      { name: "small", shape: [2, 3], type: "int8", offset: 0, scale_offset: 16 },
      { name: "wide", shape: [1, 2], type: "float32", offset: 32 },
      { name: "half", shape: [2, 2], type: "float16", offset: 48 },
      { name: "bias", shape: [2], type: "float32", offset: 64 },
    ],
    bytes: bytes.length,
    crc32: crc32(bytes),
    sha256: createHash("sha256").update(bytes).digest("hex"),
  };
  return { header, bytes, base64: deflateRawSync(bytes).toString("base64") };
}

/** @param {any} header @param {string} base64 */
async function refusal(header, base64) {
  try {
    await readParameters(readHeader(JSON.stringify(header)), base64);
  } catch (error) {
    return /** @type {any} */ (error).code;
  }
  return "accepted";
}

for (const kernels of /** @type {const} */ (["simd", "javascript"])) {
  test(`parameters of all types, with ${kernels}`, async () => {
    const { header, base64 } = page();
    const parameters = await readParameters(readHeader(JSON.stringify(header)), base64, { kernels });
    assert.equal(parameters.kernels.name, kernels);
    assert.deepEqual([...parameters.matrix("small").times(Float32Array.of(1, 10, 100))], [6345.5, 146]);
    assert.deepEqual([...parameters.matrix("wide").times(Float32Array.of(2, 1))], [0]);
    assert.deepEqual([...parameters.matrix("half").times(Float32Array.of(1, 1), Float32Array.of(1, 0))], [0, 65504]);
    assert.deepEqual([...parameters.vector("bias")], [Math.fround(0.1), 7]);
    const out = new Float32Array(6);
    parameters.matrix("small").addRowTo(1, out, 3);
    assert.deepEqual([...out], [0, 0, 0, -254, 0, 4]);
    assert.equal(parameters.optional("none"), null);
    for (const name of ["none", "bias"]) assert.throws(() => parameters.matrix(name), { code: "engine.damaged" });
  });
}

test("a damaged page is refused", async () => {
  const { header, bytes, base64 } = page();
  assert.equal(await refusal(header, base64), "accepted");
  assert.equal(await refusal(header, `\n ${base64}\n`), "accepted");
  const flipped = Buffer.from(bytes);
  flipped[2] ^= 1;
  const damaged = {
    "a bit": [header, deflateRawSync(flipped).toString("base64")],
    "the end is missing": [header, base64.slice(0, -8)],
    "no base64": [header, "*".repeat(40)],
    nothing: [header, ""],
    "too short": [header, deflateRawSync(bytes.subarray(0, 64)).toString("base64")],
    outside: [{ ...header, parameters: [{ ...header.parameters[1], offset: 76 }] }, base64],
    before: [{ ...header, parameters: [{ ...header.parameters[1], offset: -8 }] }, base64],
    scales: [{ ...header, parameters: [{ ...header.parameters[0], scale_offset: 76 }] }, base64],
    huge: [{ ...header, parameters: [{ ...header.parameters[1], shape: [1e9, 1e9] }] }, base64],
    "a type": [{ ...header, parameters: [{ ...header.parameters[1], type: "int4" }] }, base64],
    "another format": [{ ...header, format: "jumok-trace" }, base64],
    "no parameters": [{ ...header, parameters: 3 }, base64],
  };
  for (const [name, [head, text]] of Object.entries(damaged)) {
    assert.equal(await refusal(head, /** @type {string} */ (text)), "engine.damaged", name);
  }
  assert.equal(await refusal({ ...header, version: 2 }, base64), "engine.newer");
  assert.throws(() => readHeader("{"), { code: "engine.damaged" });
  assert.throws(() => readHeader("null"), { code: "engine.damaged" });
});

test("without crypto.subtle, as in some pages that were opened from disk, a plain checksum decides", async (t) => {
  const { header, bytes, base64 } = page();
  const { subtle } = crypto;
  Object.defineProperty(crypto, "subtle", { value: undefined, configurable: true });
  t.after(() => Object.defineProperty(crypto, "subtle", { value: subtle, configurable: true }));
  assert.equal(await refusal(header, base64), "accepted");
  const flipped = Buffer.from(bytes);
  flipped[70] ^= 64;
  assert.equal(await refusal(header, deflateRawSync(flipped).toString("base64")), "engine.damaged");
});

test("16-bit floats", () => {
  const halves = Uint16Array.of(0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3555, 0x3c00, 0xfbff);
  const floats = [0, -0, 2 ** -24, 1023 * 2 ** -24, 2 ** -14, 0x555 * 2 ** -12, 1, -65504];
  assert.deepEqual(Array.from(halves, halfToNumber), floats);
});

test("the checksum is that of zip files", () => {
  assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926); // the check value of CRC-32
});
