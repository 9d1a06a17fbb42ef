(module
  (import "astrid:sys/host@1.0.0" "log" (func $log (param i32 i32)))
  (memory (export "memory") 1)
  (global $stack (mut i32) (i32.const 1024))
  (global $once (mut i32) (i32.const 0))
  (func $constructors  ;; what runs once in front of every export: more than calls
    global.get $once
    br_if 0
    i32.const 1
    global.set $once)
  (func $panic_hook
    i32.const 0
    i32.const 8
    call $log)
  (func $constructors_shim  ;; a wrapper around the constructors
    call $constructors
    return)
  (func $run.method  ;; the default of the trait: the panic hook and nothing else
    call $panic_hook
    return)
  (func $run.cabi
    call $constructors_shim
    call $run.method
    return)
  (func (export "run")
    call $run.cabi
    return)
  (func $astrid-install.method  ;; the default of the trait: the panic hook and nothing else
    call $panic_hook
    return)
  (func $astrid-install.cabi
    call $constructors_shim
    call $astrid-install.method
    return)
  (func (export "astrid-install")
    call $astrid-install.cabi
    return)
  (func $astrid-upgrade.method
    (local i32)
    i32.const 2
    local.set 0
    call $panic_hook
    local.get 0
    i32.const 12
    call $log
    return)
  (func $astrid-upgrade.cabi
    call $constructors_shim
    call $astrid-upgrade.method
    return)
  (func (export "astrid-upgrade")
    call $astrid-upgrade.cabi
    return)
)
