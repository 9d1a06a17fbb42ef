#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::Deserialize;

#[derive(Default)]
pub struct Witness;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Marker {
    /// What only the caller knows.
    pub marker: String,
}

#[capsule]
impl Witness {
    /// Leave the marker everywhere, and say all that was there before.
    #[astrid::tool("witness", mutable)]
    pub fn witness(&self, args: Marker) -> Result<Vec<String>, SysError> {
        let seen = vec![
            args.marker.clone(),
            kv::get_json_opt::<String>("last")?.unwrap_or_default(),
            kv::list_keys("")?.join(" "),
            env::var("MARK")?,
            env::var("TOKEN")?,
            fs::read_to_string("home://witness.txt").unwrap_or_default(),
        ];
        kv::set_json("last", &args.marker)?;
        fs::write("home://witness.txt", args.marker.as_bytes())?;
        log::info(&args.marker);
        Ok(seen)
    }
}
