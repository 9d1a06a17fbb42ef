(module
  (func $work)
  (func (export "run") call $work))
