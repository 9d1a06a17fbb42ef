"""The edge: the canonical ABI of one hook call and of `publish`, done inside wasm.

An instance is three core modules in one store: a *trampoline* (one table slot, so that the guest's
`publish` import can exist before the guest's memory does), the *guest*, and the *edge*, which is linked to
the guest's memory and owns a second memory, the *window*.  Python writes action and payload into the
window, makes one call, and reads the answer from the window.  A guest's pointers are only ever operands of
wasm loads, stores and copies, which trap out of bounds: no Python code follows one on this path.

Window layout: a header of four u32 and a byte, then bytes from `WINDOW_START`.
  offset 0   hook result: length of `action`
  offset 4   hook result: 1 where `data` is present
  offset 8   hook result: length of `data`
  offset 12  publish: length of the text of `unknown(text)`, which the host has put at `WINDOW_START`
  offset 16  not 0 while the guest may not call the host: in realloc and post-return (the ABI's `may_leave`)

This file holds no Python logic: it is the text of two modules and the numbers that Python shares with them.
"""

from __future__ import annotations

WINDOW_START = 64
HELD_AT = 16
WINDOW_PAGES = 192
WINDOW_BYTES = WINDOW_PAGES << 16
"""12 MiB: the reference's cap on guest payloads (10 MiB) and room to spare.  A larger publish is refused as
rate-limited, which any payload over 5 MiB is (host-abi.md 1.3); a larger hook result is a trap.
"""

PUBLISH_OK = 0
PUBLISH_CASES = (
    "capability-denied",
    "invalid-input",
    "closed",
    "rate-limited",
    "backpressure",
    "quota",
    "timeout",
)
"""ipc's `error-code` in order; the host answers 1 + index, or `PUBLISH_UNKNOWN` after writing the text."""
PUBLISH_UNKNOWN = len(PUBLISH_CASES) + 1

FAULT_NONE = 0
FAULT_RESULT_TOO_LARGE = 1
FAULT_MISALIGNED = 2
FAULT_REENTERED = 3
FAULT_OUTSIDE = 4
FAULT_UNKNOWN_CASE = 5
FAULTS = {
    FAULT_RESULT_TOO_LARGE: "the hook's result is too large",
    FAULT_MISALIGNED: "the guest gave a misaligned pointer",
    FAULT_REENTERED: "the guest called the host while the host was allocating",
    FAULT_OUTSIDE: "the guest gave a pointer outside its memory",
    FAULT_UNKNOWN_CASE: "the guest passed a variant with an unknown case",
}

TRAMPOLINE = """(module
  ;; The shape of a lowered `publish(topic: string, payload: string) -> result<_, error-code>`:
  ;; topic pointer and length, payload pointer and length, pointer to the result area.
  (type $publish (func (param i32 i32 i32 i32 i32)))
  ;; One slot, filled by the edge when it is instantiated.
  (table (export "slots") 1 1 funcref)
  ;; What the guest imports: passes its five arguments on to whatever is in the slot.
  (func (export "publish") (param i32 i32 i32 i32 i32)
    (call_indirect (type $publish)
      (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (i32.const 0)))
  ;; Stands in for a post-return that the guest does not have.
  (func (export "no_post_return") (param i32)))"""

EDGE = f"""(module
  (import "guest" "memory" (memory $guest 0))
  (import "guest" "cabi_realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
  (import "guest" "hook" (func $guest_hook (param i32 i32 i32 i32) (result i32)))
  (import "guest" "post_return" (func $post_return (param i32)))
  ;; (topic length, payload length) -> 0 or 1 + the index of the error case; reads both from the window.
  (import "host" "publish" (func $host_publish (param i32 i32) (result i32)))
  (import "trampoline" "slots" (table 1 funcref))
  ;; Puts $publish into the trampoline's slot: from here on the guest's import works.
  (elem (i32.const 0) $publish)
  (memory $window (export "window") 1 {WINDOW_PAGES})
  ;; Why the edge itself stopped the guest; read by the host after a trap.
  (global $fault (export "fault") (mut i32) (i32.const {FAULT_NONE}))

  (func $stop (param $why i32)
    (global.set $fault (local.get $why))
    unreachable)

  ;; Offset just past two byte runs of lengths a and b in the window, in 64 bits so that it cannot wrap.
  (func $end (param $a i32) (param $b i32) (result i64)
    (i64.add (i64.const {WINDOW_START})
      (i64.add (i64.extend_i32_u (local.get $a)) (i64.extend_i32_u (local.get $b)))))

  ;; Grows the window to hold `end` bytes; 0 where its maximum or the store's memory limit forbids that.
  (func $fits (param $end i64) (result i32) (local $need i32)
    (if (i64.gt_u (local.get $end) (i64.const {WINDOW_BYTES})) (then (return (i32.const 0))))
    ;; Pages needed, rounded up.
    (local.set $need (i32.wrap_i64 (i64.shr_u (i64.add (local.get $end) (i64.const 65535)) (i64.const 16))))
    (if (i32.le_u (local.get $need) (memory.size $window)) (then (return (i32.const 1))))
    (i32.ne (i32.const -1)
      (memory.grow $window (i32.sub (local.get $need) (memory.size $window)))))

  ;; Copies n bytes at `at` of the window into memory that the guest allocates; gives the guest's pointer.
  ;; Nothing is allocated for no bytes: 1 is a valid pointer to an empty string.
  (func $put (param $at i32) (param $n i32) (result i32) (local $pointer i32)
    (if (i32.eqz (local.get $n)) (then (return (i32.const 1))))
    (i32.store8 $window (i32.const {HELD_AT}) (i32.const 1))
    (local.set $pointer (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (local.get $n)))
    (i32.store8 $window (i32.const {HELD_AT}) (i32.const 0))
    ;; Traps where the guest's answer lies outside its memory.
    (memory.copy $guest $window (local.get $pointer) (local.get $at) (local.get $n))
    (local.get $pointer))

  ;; Traps unless the n bytes at p are inside the guest's memory.
  (func $check_inside (param $p i32) (param $n i32)
    (if (i64.gt_u
          (i64.add (i64.extend_i32_u (local.get $p)) (i64.extend_i32_u (local.get $n)))
          (i64.shl (i64.extend_i32_u (memory.size $guest)) (i64.const 16)))
      (then (call $stop (i32.const {FAULT_OUTSIDE})))))

  ;; One hook call.  In: action (la bytes) and payload (lp bytes) at WINDOW_START.  Out: header and bytes.
  ;; The guest returns a pointer to `record {{ action: string, data: option<string> }}`:
  ;; +0 action pointer, +4 action length, +8 discriminant of data (u8), +12 data pointer, +16 data length.
  (func (export "hook") (param $la i32) (param $lp i32)
      (local $action i32) (local $payload i32) (local $r i32) (local $al i32) (local $has i32) (local $dl i32)
    (local.set $action (call $put (i32.const {WINDOW_START}) (local.get $la)))
    (local.set $payload (call $put (i32.add (i32.const {WINDOW_START}) (local.get $la)) (local.get $lp)))
    (local.set $r (call $guest_hook
      (local.get $action) (local.get $la) (local.get $payload) (local.get $lp)))
    ;; The record holds pointers, so it is aligned to 4.
    (if (i32.and (local.get $r) (i32.const 3)) (then (call $stop (i32.const {FAULT_MISALIGNED}))))
    ;; All of it lies inside, also what is not read.
    (call $check_inside (local.get $r) (i32.const 20))
    (local.set $al (i32.load $guest offset=4 (local.get $r)))
    (local.set $has (i32.load8_u $guest offset=8 (local.get $r)))
    ;; An option has two cases.
    (if (i32.gt_u (local.get $has) (i32.const 1)) (then (call $stop (i32.const {FAULT_UNKNOWN_CASE}))))
    (if (local.get $has)
      (then (local.set $dl (i32.load $guest offset=16 (local.get $r)))))
    (if (i32.eqz (call $fits (call $end (local.get $al) (local.get $dl))))
      (then (call $stop (i32.const {FAULT_RESULT_TOO_LARGE}))))
    (memory.copy $window $guest (i32.const {WINDOW_START}) (i32.load $guest (local.get $r)) (local.get $al))
    (if (local.get $has)
      (then
        (memory.copy $window $guest (i32.add (i32.const {WINDOW_START}) (local.get $al))
          (i32.load $guest offset=12 (local.get $r)) (local.get $dl))))
    (i32.store $window (i32.const 0) (local.get $al))
    (i32.store $window (i32.const 4) (local.get $has))
    (i32.store $window (i32.const 8) (local.get $dl))
    ;; Lets the guest free what it returned.
    (i32.store8 $window (i32.const {HELD_AT}) (i32.const 1))
    (call $post_return (local.get $r))
    (i32.store8 $window (i32.const {HELD_AT}) (i32.const 0)))

  ;; The guest's `publish`.  Result area: +0 discriminant (u8), +4 error case (u8), +8, +12 text.
  (func $publish (param $tp i32) (param $tl i32) (param $pp i32) (param $pl i32) (param $ret i32)
      (local $status i32) (local $length i32)
    (if (i32.load8_u $window (i32.const {HELD_AT})) (then (call $stop (i32.const {FAULT_REENTERED}))))
    (if (i32.and (local.get $ret) (i32.const 3)) (then (call $stop (i32.const {FAULT_MISALIGNED}))))
    ;; A lie about the result area must not come out after the message has gone.
    (call $check_inside (local.get $ret) (i32.const 16))
    ;; Too much to carry: an honest guest gets `rate-limited`, a lying one a trap.
    (if (i32.eqz (call $fits (call $end (local.get $tl) (local.get $pl))))
      (then
        (call $check_inside (local.get $tp) (local.get $tl))
        (call $check_inside (local.get $pp) (local.get $pl))
        (i32.store8 $guest (local.get $ret) (i32.const 1))
        (i32.store8 $guest offset=4 (local.get $ret) (i32.const {PUBLISH_CASES.index("rate-limited")}))
        (return)))
    (memory.copy $window $guest (i32.const {WINDOW_START}) (local.get $tp) (local.get $tl))
    (memory.copy $window $guest
      (i32.add (i32.const {WINDOW_START}) (local.get $tl)) (local.get $pp) (local.get $pl))
    (local.set $status (call $host_publish (local.get $tl) (local.get $pl)))
    (i32.store8 $guest (local.get $ret) (i32.ne (local.get $status) (i32.const {PUBLISH_OK})))
    (if (local.get $status)
      (then
        (i32.store8 $guest offset=4 (local.get $ret) (i32.sub (local.get $status) (i32.const 1)))
        ;; The slow road: `unknown` carries a text, which the host has left in the window.
        (if (i32.eq (local.get $status) (i32.const {PUBLISH_UNKNOWN}))
          (then
            (local.set $length (i32.load $window (i32.const 12)))
            (i32.store $guest offset=8 (local.get $ret)
              (call $put (i32.const {WINDOW_START}) (local.get $length)))
            (i32.store $guest offset=12 (local.get $ret) (local.get $length))))))))"""
