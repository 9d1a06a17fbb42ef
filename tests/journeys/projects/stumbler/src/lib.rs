#![deny(unsafe_code)]
#![deny(clippy::all)]

use astrid_sdk::prelude::*;

#[derive(Default)]
pub struct Stumbler;

#[capsule]
impl Stumbler {
    #[astrid::run]
    fn run(&self) -> Result<(), SysError> {
        let mode = env::var("MODE")?;
        if mode == "early" {
            return Err(SysError::ApiError("stumbled before it was ready".into()));
        }
        if mode != "mute" {
            runtime::signal_ready()?;
        }
        match mode.as_str() {
            "spin" => loop {
                std::hint::black_box(&mode);
            },
            "panic" => panic!("stumbled in panic"),
            "steady" | "mute" => loop {
                time::sleep(std::time::Duration::from_millis(50))?;
            },
            _ => Err(SysError::ApiError("stumbled at once".into())),
        }
    }
}
