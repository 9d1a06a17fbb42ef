#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Default)]
pub struct Looper;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Asked {
    /// Compute without end instead of answering.
    #[serde(default)]
    pub spin: bool,
}

#[capsule]
impl Looper {
    /// How often the loop has echoed, from the loop itself.
    #[astrid::tool("loop_state")]
    pub fn loop_state(&self, _args: Asked) -> Result<String, SysError> {
        Ok("answered by a handler, which a run loop has not".into())
    }

    #[astrid::run]
    fn run(&self) -> Result<(), SysError> {
        let requests = ipc::subscribe("echo.v1.request")?;
        let calls = ipc::subscribe("tool.v1.execute.loop_state")?;
        let ticks = ipc::subscribe("astrid.v1.watchdog.tick")?;
        let events = ipc::subscribe("astrid.v1.lifecycle.*")?;
        runtime::signal_ready()?;
        let mut echoed = 0u64;
        loop {
            for message in requests.recv(20)?.messages {
                let mut body: Value = serde_json::from_str(&message.payload)?;
                let id = body["correlation_id"].as_str().unwrap_or("none").to_string();
                let text = body["text"].take();
                ipc::publish_json(&format!("echo.v1.response.{id}"), &json!({ "text": text }))?;
                echoed += 1;
            }
            for message in calls.poll()?.messages {
                let body: Value = serde_json::from_str(&message.payload)?;
                while body["arguments"]["spin"] == true {
                    std::hint::black_box(&body);
                }
                let id = &body["call_id"];
                let content = format!("echoed {echoed}");
                let result = json!({ "call_id": id, "content": content, "is_error": false });
                let answer =
                    json!({ "type": "tool_execute_result", "call_id": id, "result": result });
                ipc::publish_json("tool.v1.execute.loop_state.result", &answer)?;
            }
            for message in events.poll()?.messages {
                log::info(format!("heard {} {}", message.topic, message.payload));
            }
            for _ in ticks.poll()?.messages {
                log::info("tick");
                ipc::publish_json("looper.v1.tick", &json!({ "echoed": echoed }))?;
            }
        }
    }
}
