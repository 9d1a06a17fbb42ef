#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::Deserialize;

#[derive(Default)]
pub struct Culprit;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Nothing {}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Size {
    /// How many bytes.
    pub bytes: usize,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Text {
    /// What to keep.
    pub text: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Wait {
    /// How long, in milliseconds.
    pub ms: u64,
}

#[capsule]
impl Culprit {
    /// Panic.
    #[astrid::tool("trap")]
    pub fn trap(&self, _args: Nothing) -> Result<String, SysError> {
        panic!("trapped on purpose")
    }

    /// Compute without end.
    #[astrid::tool("spin")]
    pub fn spin(&self, _args: Nothing) -> Result<String, SysError> {
        loop {
            std::hint::black_box(self);
        }
    }

    /// Ask for memory without end.
    #[astrid::tool("allocate")]
    pub fn allocate(&self, _args: Nothing) -> Result<String, SysError> {
        let mut held: Vec<Vec<u8>> = Vec::new();
        loop {
            held.push(vec![1; 1 << 20]);
            std::hint::black_box(&held);
        }
    }

    /// Publish without end on a topic that it listens to itself, whatever the host says.
    #[astrid::tool("flood")]
    pub fn flood(&self, _args: Nothing) -> Result<String, SysError> {
        let payload = serde_json::json!({ "text": "x".repeat(1000) });
        loop {
            let _ = ipc::publish_json("culprit.v1.flood", &payload);
        }
    }

    /// Where its own flood arrives.
    #[astrid::interceptor("drown")]
    pub fn drown(&self, _payload: serde_json::Value) -> Result<(), SysError> {
        Ok(())
    }

    /// Publish a payload of exactly so many bytes, and say what came of it.
    #[astrid::tool("publish")]
    pub fn publish(&self, args: Size) -> Result<String, SysError> {
        let payload = format!("\"{}\"", "x".repeat(args.bytes - 2));
        Ok(match ipc::publish("culprit.v1.large", &payload) {
            Ok(()) => "published".to_string(),
            Err(error) => error.to_string(),
        })
    }

    /// Put a text into the store.
    #[astrid::tool("keep", mutable)]
    pub fn keep(&self, args: Text) -> Result<String, SysError> {
        kv::set_json("kept", &args.text)?;
        Ok("kept".into())
    }

    /// Read what was kept last.
    #[astrid::tool("kept")]
    pub fn kept(&self, _args: Nothing) -> Result<String, SysError> {
        kv::get_json("kept")
    }

    /// Sleep in the host.
    #[astrid::tool("doze")]
    pub fn doze(&self, args: Wait) -> Result<String, SysError> {
        time::sleep(std::time::Duration::from_millis(args.ms))?;
        Ok("awake".into())
    }
}
