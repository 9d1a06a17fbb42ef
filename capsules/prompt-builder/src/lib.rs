//! Collects the tool descriptions of all capsules of a principal, once, and keeps them until the capsules change.

#![deny(unsafe_code)]
#![deny(clippy::all)]

mod collection;

use std::time::Duration;

use astrid_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use collection::{Collection, is_segment};

const ASK_TOPIC: &str = "tool.v1.request.describe";
const ANSWERS: &str = "tool.v1.response.describe.*";
const RESPONSE_PREFIX: &str = "prompt_builder.v1.response.tools.";
const CACHE_KEY: &str = "__tool_schema_cache";

/// How long answers are taken. The bus has no list of who will answer, so the window is always waited out.
const WINDOW: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct PromptBuilder;

#[derive(Deserialize)]
pub struct ToolsRequest {
    req_id: String,
}

#[derive(Serialize)]
struct ToolsResponse<'a> {
    req_id: &'a str,
    #[serde(flatten)]
    collection: &'a Collection,
}

#[capsule]
impl PromptBuilder {
    /// `prompt_builder.v1.request.tools` -> `prompt_builder.v1.response.tools.<req_id>`.
    #[astrid::interceptor("handle_tools_request")]
    pub fn handle_tools_request(&self, request: ToolsRequest) -> Result<(), SysError> {
        if !is_segment(&request.req_id) {
            log::warn("a request whose req_id is no segment of a topic cannot be answered");
            return Ok(());
        }
        let collection = match read_cache() {
            Some(cached) => cached,
            None => collect()?,
        };
        ipc::publish_json(
            &format!("{RESPONSE_PREFIX}{}", request.req_id),
            &ToolsResponse {
                req_id: &request.req_id,
                collection: &collection,
            },
        )
    }

    /// `astrid.v1.capsules_loaded`: what was known is no longer.
    #[astrid::interceptor("handle_capsules_loaded")]
    pub fn handle_capsules_loaded(&self, _event: Value) -> Result<(), SysError> {
        kv::delete(CACHE_KEY)
    }
}

/// What was collected before. What cannot be read, and what is empty, was never collected.
fn read_cache() -> Option<Collection> {
    kv::get_json_opt::<Collection>(CACHE_KEY)
        .ok()
        .flatten()
        .filter(|cached| !cached.is_empty())
}

fn collect() -> Result<Collection, SysError> {
    let answers = ipc::subscribe(ANSWERS)?; // before the question: nobody may answer unheard
    ipc::publish(ASK_TOPIC, "{}")?;
    let mut collection = Collection::default();
    let ends = time::monotonic() + WINDOW;
    loop {
        let left = ends.saturating_sub(time::monotonic()).as_millis();
        if left == 0 {
            break;
        }
        for message in answers.recv(left as u64)?.messages {
            collection.take(&message.payload, &message.source_id);
        }
    }
    for lost in collection.shadowed() {
        log::warn(format!(
            "tool '{}' of {} is shadowed by another capsule's",
            lost.name, lost.source_id
        ));
    }
    if !collection.is_empty() {
        kv::set_json(CACHE_KEY, &collection)?;
    }
    Ok(collection)
}
