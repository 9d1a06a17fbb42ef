//! One tool, `fetch_url`: the text behind an address, bounded, with errors that say what to do.

#![deny(unsafe_code)]
#![deny(clippy::all)]

mod page;

use std::collections::BTreeMap;

use astrid_sdk::http::{self, Request};
use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::{Deserialize, Serialize};

use page::{DEFAULT_CHARS, Kind, cut, decode, explain, kind_of};

#[derive(Default)]
pub struct Http;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct FetchUrlArgs {
    /// The address to get, http or https.
    pub url: String,
    /// Headers to send, such as {"Accept": "application/json"}.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How many characters of the text to return at most; 20000 where it is not given, 200000 at most.
    #[serde(default)]
    pub max_chars: Option<usize>,
}

/// What came back. `text` is cut at `max_chars`; then `truncated` is true and `total_chars` says how much there is.
#[derive(Serialize)]
pub struct Fetched {
    status: u16,
    /// Where the text came from, after redirects.
    url: String,
    content_type: String,
    text: String,
    truncated: bool,
    total_chars: usize,
}

#[capsule]
impl Http {
    /// Get the text of a web page, a JSON document or any other text by its address. Follows redirects. Answers of
    /// every status are returned, with their status. Only text: images, archives and the like are refused.
    #[astrid::tool("fetch_url")]
    pub fn fetch_url(&self, args: FetchUrlArgs) -> Result<Fetched, SysError> {
        let request = args
            .headers
            .iter()
            .fold(Request::get(args.url.trim()), |request, (name, value)| {
                request.header(name, value)
            });
        let response = http::send(&request)
            .map_err(|error| SysError::ApiError(explain(&args.url, &error.to_string())))?;
        let content_type = response
            .headers()
            .get("content-type")
            .cloned()
            .unwrap_or_default();
        let text = match kind_of(&content_type, response.bytes()) {
            Kind::Text(charset) => decode(charset, response.bytes()),
            Kind::Other => {
                return Err(SysError::ApiError(format!(
                    "{} is {}, {} bytes; only text can be fetched",
                    response.final_url(),
                    if content_type.is_empty() {
                        "binary data"
                    } else {
                        &content_type
                    },
                    response.bytes().len(),
                )));
            }
        };
        let total_chars = text.chars().count();
        let text = cut(text, args.max_chars.unwrap_or(DEFAULT_CHARS));
        Ok(Fetched {
            status: response.status(),
            url: response.final_url().to_owned(),
            content_type,
            truncated: text.chars().count() < total_chars,
            text,
            total_chars,
        })
    }
}
