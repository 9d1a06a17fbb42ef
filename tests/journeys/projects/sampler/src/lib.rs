#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::{Deserialize, Serialize};

/// The number of calls of `count`, kept in the capsule's own state.
#[derive(Default, Serialize, Deserialize)]
pub struct Sampler {
    count: u64,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Nothing {}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Text {
    /// What to write or to say.
    pub text: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Length {
    /// How many bytes to answer with.
    pub bytes: usize,
}

#[capsule(state)]
impl Sampler {
    /// Count the calls of this tool.
    #[astrid::tool("count", mutable)]
    pub fn count(&mut self, _args: Nothing) -> Result<u64, SysError> {
        self.count += 1;
        Ok(self.count)
    }

    /// Write a line to the log.
    #[astrid::tool("note")]
    pub fn note(&self, args: Text) -> Result<String, SysError> {
        log::warn(&args.text);
        Ok(args.text)
    }

    /// Panic with a message.
    #[astrid::tool("explode")]
    pub fn explode(&self, args: Text) -> Result<String, SysError> {
        panic!("exploded: {}", args.text)
    }

    /// Fail with a message, as a tool may.
    #[astrid::tool("refuse")]
    pub fn refuse(&self, args: Text) -> Result<String, SysError> {
        Err(SysError::ApiError(args.text))
    }

    /// Answer with so many bytes.
    #[astrid::tool("repeat")]
    pub fn repeat(&self, args: Length) -> Result<String, SysError> {
        Ok("x".repeat(args.bytes))
    }
}
