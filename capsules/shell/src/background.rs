//! The processes that run beside the calls, by the ids that a model knows them by. They are held by handles, which
//! end with this instance and take them along; an id is never given twice, so one of a lost process names no other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use astrid_sdk::prelude::*;
use astrid_sdk::process::Process;

use crate::{explain, said};

const LAST_ID: &str = "last-process-id";
/// Those that have ended are forgotten, the oldest first, when there are so many.
const MAX_KEPT: usize = 16;

thread_local! {
    static KEPT: RefCell<BTreeMap<u64, Process>> = const { RefCell::new(BTreeMap::new()) };
}

/// Hold a process; its id.
pub fn keep(process: Process) -> Result<u64, SysError> {
    let id = kv::get_json_opt::<u64>(LAST_ID)?.unwrap_or_default() + 1;
    kv::set_json(LAST_ID, &id)?;
    KEPT.with_borrow_mut(|kept| {
        if kept.len() >= MAX_KEPT {
            let ended = kept
                .iter()
                .find(|(_, one)| one.wait(Some(Duration::ZERO)).is_ok());
            if let Some(oldest) = ended.map(|(id, _)| *id) {
                kept.remove(&oldest);
            }
        }
        kept.insert(id, process);
    });
    Ok(id)
}

/// Do something with the process of this id.
pub fn with<T>(id: u64, act: impl FnOnce(&Process) -> Result<T, SysError>) -> Result<T, SysError> {
    KEPT.with_borrow(|kept| match kept.get(&id) {
        Some(process) => act(process).map_err(|error| explain(&error)),
        None => Err(said(&format!(
            "no background process with id {id}: it was killed, or never started"
        ))),
    })
}

/// Let go of a process.
pub fn forget(id: u64) {
    KEPT.with_borrow_mut(|kept| kept.remove(&id));
}
