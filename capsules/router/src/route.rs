//! What the router decides, as pure functions over the text of a payload.
//!
//! Nothing here talks to the host: `lib.rs` publishes what these functions return. Arguments and content are
//! carried as the raw JSON that arrived, so that a large one is copied and never parsed.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const REQUEST: &str = "tool_execute_request";
const RESULT: &str = "tool_execute_result";

/// The one topic on which every result comes back. Its last segment is why no tool may be named `result`.
pub const RESULT_TOPIC: &str = "tool.v1.execute.result";
const RESERVED_NAME: &str = "result";

/// A message to put on the bus.
#[derive(Debug, PartialEq, Eq)]
pub struct Publication {
    pub topic: String,
    pub payload: String,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Routed {
    /// Hand it to the capsule that serves the tool; `call_id` is for the error result if the bus refuses.
    Forward {
        call_id: String,
        publication: Publication,
    },
    /// The name cannot be one segment of a topic; answer with the error result.
    Reject {
        tool_name: String,
        publication: Publication,
    },
}

#[derive(Deserialize, Serialize)]
struct Request<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    call_id: Cow<'a, str>,
    #[serde(borrow)]
    tool_name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

#[derive(Deserialize, Serialize)]
struct Outcome<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    call_id: Cow<'a, str>,
    #[serde(borrow)]
    result: ToolCallResult<'a>,
}

#[derive(Deserialize, Serialize)]
struct ToolCallResult<'a> {
    #[serde(borrow)]
    call_id: Cow<'a, str>,
    #[serde(borrow)]
    content: &'a RawValue,
    is_error: bool,
}

/// Decide about a payload of `tool.v1.request.execute`. `None`: it is no tool request, and nothing happens.
pub fn route_request(payload: &str) -> Option<Routed> {
    let request: Request<'_> = serde_json::from_str(payload).ok()?;
    if request.kind != REQUEST {
        return None;
    }
    if !is_tool_name(&request.tool_name) {
        let message = format!("Invalid tool name: {}", request.tool_name);
        return Some(Routed::Reject {
            publication: error_result(&request.call_id, &message),
            tool_name: request.tool_name.into_owned(),
        });
    }
    Some(Routed::Forward {
        publication: Publication {
            topic: format!("tool.v1.execute.{}", request.tool_name),
            payload: serde_json::to_string(&request).ok()?,
        },
        call_id: request.call_id.into_owned(),
    })
}

/// Decide about a payload of `tool.v1.execute.<name>.result`: it goes unchanged to the topic of all results.
/// `None`: it is no tool result, and nothing happens.
pub fn route_result(payload: &str) -> Option<Publication> {
    let outcome: Outcome<'_> = serde_json::from_str(payload).ok()?;
    if outcome.kind != RESULT || !outcome.result.content.get().starts_with('"') {
        return None;
    }
    Some(Publication {
        topic: RESULT_TOPIC.to_string(),
        payload: serde_json::to_string(&outcome).ok()?,
    })
}

/// The result that says why a call did not reach a tool, so that nobody waits for an answer in vain.
pub fn error_result(call_id: &str, message: &str) -> Publication {
    let payload = serde_json::json!({
        "type": RESULT,
        "call_id": call_id,
        "result": { "call_id": call_id, "content": message, "is_error": true },
    });
    Publication {
        topic: RESULT_TOPIC.to_string(),
        payload: payload.to_string(),
    }
}

/// A name is one segment of a topic: letters and digits of any script, `-`, `_`, `:`. A dot would reach into
/// another capsule's topics, and `result` is the topic of all results.
fn is_tool_name(name: &str) -> bool {
    !name.is_empty()
        && name != RESERVED_NAME
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tool_name: &str) -> String {
        serde_json::json!({
            "type": "tool_execute_request",
            "call_id": "call-1",
            "tool_name": tool_name,
            "arguments": { "name": "Ada" },
        })
        .to_string()
    }

    #[test]
    fn a_request_goes_to_the_topic_of_its_tool() {
        assert_eq!(
            route_request(&request("read_file")),
            Some(Routed::Forward {
                call_id: "call-1".to_string(),
                publication: Publication {
                    topic: "tool.v1.execute.read_file".to_string(),
                    payload: concat!(
                        r#"{"type":"tool_execute_request","call_id":"call-1","#,
                        r#""tool_name":"read_file","arguments":{"name":"Ada"}}"#
                    )
                    .to_string(),
                },
            })
        );
    }

    #[test]
    fn arguments_are_carried_as_they_came() {
        let payload = concat!(
            r#"{"arguments":{"n":1.0e2,"n":1e400,"s":"\u00e9"},"call_id":"c","#,
            r#""tool_name":"t","type":"tool_execute_request","more":1}"#
        );
        let Some(Routed::Forward { publication, .. }) = route_request(payload) else {
            panic!("not forwarded");
        };
        assert_eq!(
            publication.payload,
            concat!(
                r#"{"type":"tool_execute_request","call_id":"c","tool_name":"t","#,
                r#""arguments":{"n":1.0e2,"n":1e400,"s":"\u00e9"}}"#
            )
        );
    }

    #[test]
    fn names_are_letters_digits_of_any_script_and_three_marks() {
        for name in ["foo", "a-b_c:d", "9", "größe", "道具", "٣", "½"] {
            assert!(
                matches!(route_request(&request(name)), Some(Routed::Forward { .. })),
                "{name}"
            );
        }
        for name in [
            "", "foo.bar", "a b", "a/b", "*", "a\n", "e\u{301}", "a\u{0}", "result",
        ] {
            assert!(
                matches!(route_request(&request(name)), Some(Routed::Reject { .. })),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_bad_name_is_answered_with_the_error_result() {
        let Some(Routed::Reject {
            tool_name,
            publication,
        }) = route_request(&request("foo.bar"))
        else {
            panic!("not rejected");
        };
        assert_eq!(tool_name, "foo.bar");
        assert_eq!(publication.topic, "tool.v1.execute.result");
        let value: serde_json::Value = serde_json::from_str(&publication.payload).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "type": "tool_execute_result",
                "call_id": "call-1",
                "result": {
                    "call_id": "call-1",
                    "content": "Invalid tool name: foo.bar",
                    "is_error": true,
                },
            })
        );
    }

    #[test]
    fn a_result_goes_unchanged_to_the_topic_of_all_results() {
        let payload = concat!(
            r#"{"call_id":"c1","result":{"call_id":"c2","content":"a\u0041\n","is_error":false},"#,
            r#""type":"tool_execute_result"}"#
        );
        assert_eq!(
            route_result(payload),
            Some(Publication {
                topic: "tool.v1.execute.result".to_string(),
                payload: concat!(
                    r#"{"type":"tool_execute_result","call_id":"c1","#,
                    r#""result":{"call_id":"c2","content":"a\u0041\n","is_error":false}}"#
                )
                .to_string(),
            })
        );
    }

    #[test]
    fn anything_else_is_ignored() {
        let result = r#"{"type":"tool_execute_result","call_id":"c","result":{"call_id":"c","content":"x","is_error":false}}"#;
        for payload in [
            "null",
            "[]",
            "\"text\"",
            "{}",
            r#"{"type":"custom","data":{}}"#,
            r#"{"type":"tool_execute_request","call_id":1,"tool_name":"t","arguments":{}}"#,
            r#"{"call_id":"c","tool_name":"t","arguments":{}}"#,
            result,
        ] {
            assert_eq!(route_request(payload), None, "{payload}");
        }
        for payload in [
            "null",
            "{}",
            r#"{"type":"tool_execute_result","call_id":"c","result":"text"}"#,
            r#"{"type":"tool_execute_result","call_id":"c","result":{"call_id":"c","content":1,"is_error":false}}"#,
            request("t").as_str(),
        ] {
            assert_eq!(route_result(payload), None, "{payload}");
        }
    }
}
