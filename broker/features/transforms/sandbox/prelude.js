// Runs before a function's own code.  Afterwards nothing is left in its world that differs from run to run, and what
// is returned here has kept what it needs, so that code which replaces the world's own functions fools itself alone.
(function () {
  "use strict";
  const parse = JSON.parse, stringify = JSON.stringify, construct = Reflect.construct, imul = Math.imul;
  const RealDate = Date, AnyError = Error;
  const textOf = Function.prototype.call.bind(Error.prototype.toString);
  let now = 0, seed = 0;

  function FixedDate(...given) {
    if (!new.target) return new RealDate(now).toString();
    return construct(RealDate, given.length ? given : [now], new.target);
  }
  FixedDate.prototype = RealDate.prototype;
  RealDate.prototype.constructor = FixedDate;
  FixedDate.UTC = RealDate.UTC;
  FixedDate.parse = RealDate.parse;
  FixedDate.now = () => now;
  globalThis.Date = FixedDate;
  Math.random = () => {  // "mulberry32"
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  for (const name of ["performance", "WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics"]) {
    delete globalThis[name];
  }
  // Errors that end a function are made into text where no bound of time holds: by nothing that it may have replaced.
  for (const kind of [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, InternalError,
                      AggregateError, SuppressedError]) {
    Object.defineProperty(kind.prototype, Symbol.toPrimitive, { value: undefined });
    Object.freeze(kind.prototype);
  }

  const wrong = (what) => stringify([0, "it must return " + what, ""]);

  return function transform(f, text, millis, start) {
    now = millis;
    seed = start | 0;
    try {
      const given = parse(text);
      const made = f(given[0], given[1]);
      if (made === null) return null;
      if (typeof made !== "object") return wrong("a message or null, not " + typeof made);
      const data = made.data;
      return typeof data === "string" ? stringify([data, made.attributes]) : wrong("data that is a string");
    } catch (error) {
      return stringify(error instanceof AnyError ? [0, textOf(error), error.stack] : [0, "" + error, ""]);
    }
  };
})()
