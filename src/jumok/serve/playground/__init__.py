"""The engine of the playground over HTTP: what its page asks of a model (`view/assets/page/engine_types.js`)."""
