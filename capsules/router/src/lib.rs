//! Stateless middleware of the tool convention: it validates a tool's name, forwards the request to the topic of
//! that tool, and brings every tool's result back on one topic.

#![deny(unsafe_code)]
#![deny(clippy::all)]

mod route;

use astrid_sdk::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use route::{Publication, Routed};

#[derive(Default)]
pub struct Router;

/// Any JSON text, unparsed.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct Payload(Box<RawValue>);

#[capsule]
impl Router {
    /// `tool.v1.request.execute` -> `tool.v1.execute.<name>`, or the error result.
    #[astrid::interceptor("handle_execute_request")]
    pub fn handle_execute_request(&self, payload: Payload) -> Result<(), SysError> {
        match route::route_request(payload.0.get()) {
            None => Ok(()),
            Some(Routed::Reject {
                tool_name,
                publication,
            }) => {
                log::warn(format!("Rejected invalid tool name: {tool_name}"));
                publish(&publication)
            }
            Some(Routed::Forward {
                call_id,
                publication,
            }) => publish(&publication).or_else(|error| {
                let message = format!("Failed to route tool request: {error}");
                publish(&route::error_result(&call_id, &message))
            }),
        }
    }

    /// `tool.v1.execute.<name>.result` -> `tool.v1.execute.result`.
    #[astrid::interceptor("handle_execute_result")]
    pub fn handle_execute_result(&self, payload: Payload) -> Result<(), SysError> {
        route::route_result(payload.0.get()).map_or(Ok(()), |publication| publish(&publication))
    }
}

fn publish(publication: &Publication) -> Result<(), SysError> {
    ipc::publish(&publication.topic, &publication.payload)
}
