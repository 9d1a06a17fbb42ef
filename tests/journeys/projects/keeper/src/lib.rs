#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::Deserialize;

#[derive(Default)]
pub struct Keeper;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Nothing {}

#[capsule]
impl Keeper {
    /// Say how long the secret is and which city is set.
    #[astrid::tool("measure")]
    pub fn measure(&self, _args: Nothing) -> Result<String, SysError> {
        let key = env::var("API_KEY")?;
        log::info(format!("the key has {} bytes", key.len()));
        Ok(format!("{} {}", key.len(), env::var("CITY")?))
    }

    /// Panic with the secret in memory.
    #[astrid::tool("crash")]
    pub fn crash(&self, _args: Nothing) -> Result<String, SysError> {
        let key = env::var("API_KEY")?;
        assert!(key.is_empty(), "it is set");
        Ok(key)
    }

    /// Fail with the secret in memory.
    #[astrid::tool("fail")]
    pub fn fail(&self, _args: Nothing) -> Result<String, SysError> {
        let key = env::var("API_KEY")?;
        kv::set_bytes("length", &[u8::try_from(key.len()).unwrap_or(255)])?;
        Err(SysError::ApiError("as it was asked to".to_string()))
    }
}
