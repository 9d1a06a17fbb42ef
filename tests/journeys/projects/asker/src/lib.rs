#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::{Deserialize, Serialize};

/// Asks people: for an approval in a tool, for answers in its lifecycle hooks.
#[derive(Default)]
pub struct Asker;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Nothing {}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Deed {
    /// What is to be done.
    pub action: String,
    /// What it is to be done to.
    pub resource: String,
}

/// What the install hook was told; the secret is never among it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answers {
    pub city: String,
    pub color: String,
    pub tags: Vec<String>,
    pub had_secret: bool,
    pub has_secret: bool,
}

#[capsule]
impl Asker {
    /// Ask for an approval and say what was decided.
    #[astrid::tool("ask_approval")]
    pub fn ask_approval(&self, args: Deed) -> Result<String, SysError> {
        let allowed = approval::request(&args.action, &args.resource)?;
        Ok(if allowed { "allowed" } else { "denied" }.to_string())
    }

    /// Try to elicit where it is out of place.
    #[astrid::tool("elicit_here")]
    pub fn elicit_here(&self, _args: Nothing) -> Result<String, SysError> {
        elicit::text("city", "Which city?")
    }

    /// What the install hook was told.
    #[astrid::tool("answers")]
    pub fn answers(&self, _args: Nothing) -> Result<Answers, SysError> {
        kv::get_json("answers")
    }

    /// How long the secret is, never what it is.
    #[astrid::tool("secret_length")]
    pub fn secret_length(&self, _args: Nothing) -> Result<usize, SysError> {
        Ok(env::var("api_key")?.len())
    }

    #[astrid::install]
    pub fn install(&self) -> Result<(), SysError> {
        let had_secret = elicit::has_secret("api_key")?;
        let city = elicit::text_with_default("city", "Which city?", "Zürich")?;
        kv::set_json("city", &city)?;
        elicit::secret("api_key", "The key of the weather service")?;
        match city.as_str() {
            "fail" => return Err(SysError::ApiError("no such city".into())),
            "trap" => panic!("this city is a trap"),
            _ => {}
        }
        let color = elicit::select("color", "Which colour?", &["red", "blue"])?;
        let tags = elicit::array("tags", "Tags, one a line")?;
        let has_secret = elicit::has_secret("api_key")?;
        kv::set_json(
            "answers",
            &Answers {
                city,
                color,
                tags,
                had_secret,
                has_secret,
            },
        )
    }

    #[astrid::upgrade]
    pub fn upgrade(&self, prev_version: &str) -> Result<(), SysError> {
        log::warn(format!("upgraded from {prev_version}"));
        Ok(())
    }
}
