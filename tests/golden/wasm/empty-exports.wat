(module
  (func (export "run"))
  (func (export "astrid-install"))
  (func (export "astrid-upgrade") (local i32)))
