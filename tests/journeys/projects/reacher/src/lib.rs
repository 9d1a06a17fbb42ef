#![deny(unsafe_code)]
#![deny(clippy::all)]

use std::time::Duration;

use astrid_sdk::http::{self, Request};
use astrid_sdk::prelude::*;
use astrid_sdk::{identity, net, uplink};
use astrid_sdk::schemars;
use serde::Deserialize;

#[derive(Default)]
pub struct Reacher;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Page {
    /// Where to go.
    pub url: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Port {
    /// A port of this machine.
    pub port: u16,
    /// What to send.
    pub text: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Nothing {}

#[capsule]
impl Reacher {
    /// Request a page with a key that is never seen here.
    #[astrid::tool("page")]
    pub fn page(&self, args: Page) -> Result<String, SysError> {
        let request = Request::get(args.url).header("Authorization", "Bearer {{secret:API_KEY}}");
        let response = http::send(&request)?;
        Ok(format!(
            "{} {} after {}: {}",
            response.status(),
            response.final_url(),
            response.redirect_count(),
            response.text()?
        ))
    }

    /// Read a page in parts; how many bytes they have.
    #[astrid::tool("stream")]
    pub fn stream(&self, args: Page) -> Result<String, SysError> {
        let stream = http::stream_start(&Request::get(args.url))?;
        let mut bytes = 0;
        while let Some(part) = stream.read_chunk()? {
            bytes += part.len();
        }
        Ok(format!("{} {bytes}", stream.status()))
    }

    /// Send a frame, return the one that answers.
    #[astrid::tool("frames")]
    pub fn frames(&self, args: Port) -> Result<String, SysError> {
        let stream = net::connect("127.0.0.1", args.port)?;
        stream.write(args.text.as_bytes())?;
        let answer = stream
            .recv()
            .map_err(|error| SysError::ApiError(error.to_string()))?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Send a datagram, return the one that answers.
    #[astrid::tool("datagram")]
    pub fn datagram(&self, args: Port) -> Result<String, SysError> {
        let socket = net::udp_bind("127.0.0.1", 0)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        socket.send_to(args.text.as_bytes(), "127.0.0.1", args.port)?;
        let answer = socket.recv_from(1000)?;
        Ok(answer.map_or_else(String::new, |one| String::from_utf8_lossy(&one.data).into_owned()))
    }

    /// Listen, say where in the log, return the first frame that comes.
    #[astrid::tool("serve_once")]
    pub fn serve_once(&self, _args: Nothing) -> Result<String, SysError> {
        let listener = net::bind_tcp("127.0.0.1", 0)?;
        log::info(format!("listening at {}", listener.local_addr()?));
        let stream = listener.accept()?;
        let frame = stream
            .recv()
            .map_err(|error| SysError::ApiError(error.to_string()))?;
        Ok(String::from_utf8_lossy(&frame).into_owned())
    }

    /// Wait at the capsule's own Unix socket, return the first frame of a client and who sent it.
    #[astrid::tool("serve_home")]
    pub fn serve_home(&self, _args: Nothing) -> Result<String, SysError> {
        let stream = net::bind_unix()?.accept()?;
        let principal = stream.connection_principal()?;
        let sender = principal.as_ref().map_or("nobody", |one| one.as_str());
        let is_owned = stream.connection_owner()?.is_some();
        let frame = stream
            .recv()
            .map_err(|error| SysError::ApiError(error.to_string()))?;
        stream.write(b"got it")?;
        let said = String::from_utf8_lossy(&frame);
        Ok(format!("{said} of {sender}, owned: {is_owned}"))
    }

    /// Make a user, link somebody to it, and say what comes of every call.
    #[astrid::tool("people")]
    pub fn people(&self, _args: Nothing) -> Result<Vec<String>, SysError> {
        let stranger = identity::resolve("discord", "7")?;
        let ada = identity::create_user(Some("Ada"))?;
        identity::link("Discord", "7", &ada, "token")?;
        let again = identity::link("discord", "7", &ada, "token").unwrap_err();
        let found = identity::resolve("discord", "7")?;
        let links = identity::list_links(&ada)?;
        let unlinked = [identity::unlink("discord", "7")?, identity::unlink("discord", "7")?];
        let nobody = identity::list_links("nobody").unwrap_err();
        Ok(vec![
            format!("{}", stranger.is_none()),
            again.to_string(),
            format!("{:?}", found.map(|one| (one.user_id == ada, one.display_name))),
            format!("{:?}", links.iter().map(|one| &one.platform).collect::<Vec<_>>()),
            format!("{unlinked:?}"),
            nobody.to_string(),
        ])
    }

    /// Bring in what somebody says elsewhere.
    #[astrid::tool("bring_in")]
    pub fn bring_in(&self, args: Page) -> Result<bool, SysError> {
        let bot = uplink::register("bot", "Discord", "chat")?;
        uplink::send(&bot, "7", &args.url)
    }

    /// What was brought in last.
    #[astrid::tool("heard")]
    pub fn heard(&self, _args: Nothing) -> Result<String, SysError> {
        Ok(String::from_utf8_lossy(&kv::get_bytes("heard")?).into_owned())
    }

    #[astrid::interceptor("hear")]
    pub fn hear(&self, said: serde_json::Value) -> Result<(), SysError> {
        kv::set_bytes("heard", said.to_string().as_bytes())
    }
}
