// Work in turns: a long computation lets other messages in, `stop` among them.

const LONGEST_TURN = 16; // milliseconds

/** Lets messages in when a turn has lasted long enough. */
export class Turns {
  constructor() {
    this.began = performance.now();
  }

  /** Wait for the messages that have come, if it is time. */
  async pause() {
    if (performance.now() - this.began < LONGEST_TURN) return;
    await nextTask();
    this.began = performance.now();
  }
}

/** Calls that use the same state, one after the other: two that take turns would undo each other's work for ever. */
export class Queue {
  constructor() {
    /** @type {Promise<unknown>} */
    this.last = Promise.resolve();
  }

  /** @template T @param {() => Promise<T>} call begins when those before it have ended @returns {Promise<T>} */
  run(call) {
    const result = this.last.then(call);
    this.last = result.catch(() => {});
    return result;
  }
}

/** The end of the queue of tasks. A timer would wait for 4 ms, and for a second in a tab that is hidden. */
function nextTask() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve(undefined);
    };
    port2.postMessage(null);
  });
}
