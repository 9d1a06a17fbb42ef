#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::Deserialize;

#[derive(Default)]
pub struct Capsule;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct HelloArgs {
    /// Who to greet. The model reads this line.
    pub name: String,
}

#[capsule]
impl Capsule {
    /// Greet someone. The model reads this line when it looks for a tool.
    #[astrid::tool("hello")]
    pub fn hello(&self, args: HelloArgs) -> Result<String, SysError> {
        log::info(format!("greeting {}", args.name));
        Ok(format!("Hello, {}!", args.name))
    }
}
