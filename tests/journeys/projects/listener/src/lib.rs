#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::{Deserialize, Serialize};

#[derive(Default)]
pub struct Listener;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Pattern {
    /// What to subscribe to.
    pub pattern: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Count {
    /// How many.
    pub count: u64,
}

#[derive(Debug, Default, Deserialize, Serialize, schemars::JsonSchema)]
pub struct Text {
    /// What to say.
    pub text: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Delivery {
    /// The topic to publish on.
    pub topic: String,
    /// The delivery id.
    pub id: String,
}

#[capsule]
impl Listener {
    /// Subscribe, receive without waiting, and let go again.
    #[astrid::tool("try_subscribe")]
    pub fn try_subscribe(&self, args: Pattern) -> Result<String, SysError> {
        let subscription = match ipc::subscribe(&args.pattern) {
            Ok(one) => one,
            Err(error) => return Ok(format!("refused: {error}")),
        };
        let empty = subscription.recv(0)?.messages.len() + subscription.poll()?.messages.len();
        Ok(format!("subscribed, {empty} messages"))
    }

    /// Hold as many subscriptions as asked for; which one was refused, and how.
    #[astrid::tool("hold")]
    pub fn hold(&self, args: Count) -> Result<String, SysError> {
        let mut held = Vec::new();
        for number in 1..=args.count {
            match ipc::subscribe("burst.v1.held") {
                Ok(one) => held.push(one),
                Err(error) => return Ok(format!("{number}: {error}")),
            }
        }
        Ok(format!("{} held", held.len()))
    }

    /// Ask the echo service and wait for its answer.
    #[astrid::tool("ask")]
    pub fn ask(&self, args: Text) -> Result<String, SysError> {
        let answer: Text =
            ipc::request_response("echo.v1.request", "echo.v1.response", &args, 5_000)?;
        Ok(answer.text)
    }

    /// Publish so many messages at once, then receive them one by one.
    #[astrid::tool("burst")]
    pub fn burst(&self, args: Count) -> Result<Vec<u64>, SysError> {
        let subscription = ipc::subscribe("burst.v1.*")?;
        for number in 0..args.count {
            ipc::publish_json("burst.v1.number", &number)?;
        }
        let mut got = Vec::new();
        while (got.len() as u64) < args.count {
            let received = subscription.recv(2_000)?;
            let Some(message) = received.messages.into_iter().next() else {
                break;
            };
            got.push(serde_json::from_str(&message.payload)?);
        }
        Ok(got)
    }

    /// Publish with a delivery id and wait for the receipt.
    #[astrid::tool("deliver")]
    pub fn deliver(&self, args: Delivery) -> Result<String, SysError> {
        let receipts = ipc::subscribe("astrid.v1.delivery.failure.*")?;
        let payload = serde_json::json!({ "_astrid_delivery_id": args.id, "n": 1 });
        if let Err(error) = ipc::publish_json(&args.topic, &payload) {
            return Ok(format!("refused: {error}"));
        }
        let received = receipts.recv(1_000)?;
        let Some(message) = received.messages.into_iter().next() else {
            return Ok("no receipt".into());
        };
        Ok(message.payload)
    }
}
