(module
  (type $two (func (result i32 i32)))
  (import "m" "f" (func $f (param i32)))
  (memory 1 1 shared)
  (memory $other 1)
  (table $t 2 funcref)
  (table $externs 2 externref)
  (tag $tag (param i32))
  (data $d "x")
  (elem $e func $f)
  (elem declare func $f)
  (global $g (mut i32) (i32.const 0))
  (func $callee)
  (func $returns (result i32) i32.const 0)
  (func (export "f") (param i32) (result i32) (local i32 v128 funcref f32 f64)
    block (result i32) i32.const 1 end
    drop
    block (type $two) i32.const 1 i32.const 2 end
    drop drop
    loop br 0 end
    local.get 0
    if call $callee else nop end
    block block local.get 0 br_table 0 1 0 end end
    i32.const -1 drop i64.const -9223372036854775808 drop f32.const 1.5 drop f64.const 2.5 drop
    i32.const 4 i32.load offset=70000 align=1 drop
    i32.const 4 i64.const 1 i64.store32 $other offset=8
    memory.size drop i32.const 1 memory.grow drop
    local.get 0 local.tee 1 local.set 0
    global.get $g global.set $g
    i32.const 1 i32.const 2 local.get 0 select drop
    ref.null func ref.null func local.get 0 select (result funcref) drop
    ref.func $f ref.is_null drop
    i32.const 0 table.get $t drop
    i32.const 0 ref.null func table.set $t
    ref.null func i32.const 1 table.grow $t drop
    table.size $t drop
    i32.const 0 ref.null func i32.const 1 table.fill $t
    i32.const 0 i32.const 0 i32.const 1 table.copy $t $t
    i32.const 0 i32.const 0 i32.const 1 table.init $t $e
    elem.drop $e
    i32.const 0 i32.const 0 i32.const 1 memory.init $d
    data.drop $d
    i32.const 0 i32.const 0 i32.const 1 memory.copy
    i32.const 0 i32.const 0 i32.const 1 memory.fill
    f32.const 1 i32.trunc_sat_f32_s drop
    local.get 0 i32.extend8_s drop
    i32.const 0 v128.load offset=9 local.set 2
    local.get 2 local.get 2 i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 local.set 2
    v128.const i64x2 1 2 i32x4.extract_lane 3 drop
    i32.const 0 local.get 2 v128.load8_lane offset=3 1 local.set 2
    i32.const 0 local.get 2 v128.store64_lane 1
    i32.const 0 v128.load32_zero drop
    local.get 2 local.get 2 i32x4.add drop
    i32.const 0 i32.atomic.load drop
    i32.const 0 i32.const 1 i32.atomic.rmw.add drop
    atomic.fence
    block $handler (result i32) try_table (catch $tag $handler) call $callee end i32.const 3 end drop
    i32.const 0 call_indirect $t (type 3)
    call $callee
    i32.const 7
    call $f
    return_call $returns)
)
