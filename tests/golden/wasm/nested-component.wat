(component
  (import "astrid:ipc/host@1.0.0" (instance $ipc (export "publish" (func (param "topic" string)))))
  (import "capsule-result" (type $r (sub resource)))
  (import "plain" (func $plain))
  (component $inner
    (core module $deep (func (export "deep")))
    (import "x:y/z@0.1.0" (instance)))
  (core module $main (func (export "run")) (func (export "astrid-install")))
  (core instance $i (instantiate $main))
  (func (export "run") (canon lift (core func $i "run")))
  (export "again" (func $plain))
  (core module $last)
)
