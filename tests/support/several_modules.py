"""Components that are no single core module, written out: two modules that share a memory, and one nested.

The first module is the library: memory, allocator, and a function that doubles the payload's length.  The
second is the program: it imports memory and function from the library and `publish` from the host.
"""

from __future__ import annotations

_IPC_TYPE = """
 (type $ipc-type (instance
  (type $v (variant (case "capability-denied") (case "invalid-input") (case "closed") (case "rate-limited")
   (case "backpressure") (case "quota") (case "timeout") (case "unknown" string)))
  (export "error-code" (type $code (eq $v)))
  (type $r (result (error $code)))
  (type $f (func (param "topic" string) (param "payload" string) (result $r)))
  (export "publish" (func (type $f)))))
 (import "astrid:ipc/host@1.0.0" (instance $ipc (type $ipc-type)))
 (type $rec (record (field "action" string) (field "data" (option string))))
 (import "capsule-result" (type $capsule-result (eq $rec)))"""

_BODY = """
 (core module $library
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 4096))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $p i32)
   (local.set $p (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
   (global.set $heap (i32.add (local.get $p) (local.get 3)))
   (local.get $p))
  (func (export "reset") (param i32) (global.set $heap (i32.const 4096)))
  (func (export "twice") (param i32) (result i32) (i32.mul (local.get 0) (i32.const 2))))
 (core module $program
  (import "library" "memory" (memory 1))
  (import "library" "twice" (func $twice (param i32) (result i32)))
  (import "ipc" "publish" (func $publish (param i32 i32 i32 i32 i32)))
  (data (i32.const 64) "topic")
  ;; Publishes its payload on `topic`; returns its action, and its payload cut to half its length.
  (func (export "hook") (param $a i32) (param $al i32) (param $p i32) (param $pl i32) (result i32)
   (call $publish (i32.const 64) (i32.const 5) (local.get $p) (local.get $pl) (i32.const 512))
   (i32.store (i32.const 16) (local.get $a)) (i32.store (i32.const 20) (local.get $al))
   (i32.store8 (i32.const 24) (i32.eqz (i32.load8_u (i32.const 512))))
   (i32.store (i32.const 28) (local.get $p))
   (i32.store (i32.const 32) (i32.shr_u (call $twice (local.get $pl)) (i32.const 2)))
   (i32.const 16))
  (func (export "install") (call $publish (i32.const 64) (i32.const 5) (i32.const 64) (i32.const 0)
   (i32.const 512))))
 (core instance $library (instantiate $library))
 (core func $publish (canon lower (func $ipc "publish")
  (memory (core memory $library "memory")) (realloc (core func $library "realloc"))))
 (core instance $program (instantiate $program
  (with "library" (instance $library))
  (with "ipc" (instance (export "publish" (func $publish))))))
 (func $hook (param "action" string) (param "payload" (list u8)) (result $capsule-result)
  (canon lift (core func $program "hook") (memory (core memory $library "memory"))
   (realloc (core func $library "realloc")) (post-return (core func $library "reset"))))
 (func $install (canon lift (core func $program "install")))
 (export "astrid-hook-trigger" (func $hook))
 (export "astrid-install" (func $install))"""

UTF_16 = """(component
 (type $rec (record (field "action" string) (field "data" (option string))))
 (import "capsule-result" (type $capsule-result (eq $rec)))
 (core module $m
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 4096))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $p i32)
   (if (local.get 0) (then (return (local.get 0))))  ;; asked to shrink
   (local.set $p (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
   (global.set $heap (i32.add (local.get $p) (local.get 3)))
   (local.get $p))
  (func (export "astrid-hook-trigger") (param $a i32) (param $al i32) (param i32 i32) (result i32)
   (i32.store (i32.const 16) (local.get $a)) (i32.store (i32.const 20) (local.get $al))
   (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)))
 (core instance $i (instantiate $m))
 (func $hook (param "action" string) (param "payload" (list u8)) (result $capsule-result)
  (canon lift (core func $i "astrid-hook-trigger") string-encoding=utf16
   (memory (core memory $i "memory")) (realloc (core func $i "cabi_realloc"))))
 (export "astrid-hook-trigger" (func $hook)))"""
"""One core module with the usual names, whose texts are in UTF-16; returns its action."""

TWO_MODULES = f"(component {_IPC_TYPE} {_BODY})"

NESTED = f"""(component
 {_IPC_TYPE}
 (component $inner {_IPC_TYPE} {_BODY})
 (instance $made (instantiate $inner
  (with "astrid:ipc/host@1.0.0" (instance $ipc))
  (with "capsule-result" (type $capsule-result))))
 (alias export $made "astrid-hook-trigger" (func $hook))
 (alias export $made "astrid-install" (func $install))
 (export "astrid-hook-trigger" (func $hook))
 (export "astrid-install" (func $install)))"""
